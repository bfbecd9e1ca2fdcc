"""The networks of TD3 and its descendants: a deterministic actor and an ensemble of critics."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from rl_training.models.actors import DeterministicActor
from rl_training.models.mlp import EnsembleMLP


class MLPTD3Model(nn.Module):
    def __init__(
        self, obs_dim: int, action_dim: int, hidden_sizes: Sequence[int], num_critics: int = 2
    ) -> None:
        super().__init__()
        self.actor = DeterministicActor(obs_dim, action_dim, hidden_sizes)
        self.critic = EnsembleMLP(num_critics, obs_dim + action_dim, hidden_sizes)
