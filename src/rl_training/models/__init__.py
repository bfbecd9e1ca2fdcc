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
from rl_training.models.critic_weighted import (
    critic_weighted_choices,
    critic_weighted_sample,
    least_q,
)
from rl_training.models.distributions import gaussian_log_prob, squashed_gaussian_log_prob
from rl_training.models.dueling import DuelingMLP
from rl_training.models.init import Init
from rl_training.models.mlp import MLP, EnsembleMLP, LearnedScale
from rl_training.models.mlp_imitation import MLPImitationModel
from rl_training.models.mlp_sac import MLPSACModel
from rl_training.models.mlp_td3 import MLPTD3Model

__all__ = [
    "MLP",
    "Actor",
    "CategoricalActor",
    "DeterministicActor",
    "DuelingMLP",
    "EnsembleMLP",
    "GaussianActor",
    "GreedyActor",
    "Init",
    "LearnedScale",
    "MLPImitationModel",
    "MLPSACModel",
    "MLPTD3Model",
    "SquashedGaussianActor",
    "critic_weighted_choices",
    "critic_weighted_sample",
    "gaussian_log_prob",
    "least_q",
    "pick",
    "squashed_gaussian_log_prob",
]
