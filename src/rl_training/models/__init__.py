"""Networks and distributions; they know nothing of data, environments or training."""

from rl_training.models.actors import Actor, DeterministicActor, GaussianActor
from rl_training.models.distributions import gaussian_log_prob
from rl_training.models.mlp_td3 import MLPTD3Model
from rl_training.models.networks import MLP, EnsembleMLP

__all__ = [
    "MLP",
    "Actor",
    "DeterministicActor",
    "EnsembleMLP",
    "GaussianActor",
    "MLPTD3Model",
    "gaussian_log_prob",
]
