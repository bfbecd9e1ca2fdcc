"""Networks and distributions; they know nothing of data, environments or training."""

from rl_training.models.actors import (
    Actor,
    CategoricalActor,
    DeterministicActor,
    GaussianActor,
    GreedyActor,
    SquashedGaussianActor,
    pick,
)
from rl_training.models.distributions import gaussian_log_prob, squashed_gaussian_log_prob
from rl_training.models.mlp_sac import MLPSACModel
from rl_training.models.mlp_td3 import MLPTD3Model
from rl_training.models.networks import MLP, EnsembleMLP, Init, LearnedScale

__all__ = [
    "MLP",
    "Actor",
    "CategoricalActor",
    "DeterministicActor",
    "EnsembleMLP",
    "GaussianActor",
    "GreedyActor",
    "Init",
    "LearnedScale",
    "MLPSACModel",
    "MLPTD3Model",
    "SquashedGaussianActor",
    "gaussian_log_prob",
    "pick",
    "squashed_gaussian_log_prob",
]
