"""The networks of SAC and CQL: a squashed Gaussian actor and an ensemble of critics."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from rl_training.models.actors import SquashedGaussianActor
from rl_training.models.mlp import EnsembleMLP


class MLPSACModel(nn.Module):
    def __init__(
        self, obs_dim: int, action_dim: int, hidden_sizes: Sequence[int], num_critics: int = 2
    ) -> None:
        super().__init__()
        self.actor = SquashedGaussianActor(obs_dim, action_dim, hidden_sizes)
        self.critic = EnsembleMLP(num_critics, obs_dim + action_dim, hidden_sizes)

    def action_logprobs(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Log-densities (batch,) of given actions in [-1, 1], finite also at the bounds."""
        return self.actor.log_prob(obs, actions)
