"""The networks of IQL, AWAC and CRR: a policy that knows its densities, and critics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from rl_training.models.actors import CategoricalActor, GaussianActor
from rl_training.models.init import DEFAULT_INIT, Init
from rl_training.models.mlp import EnsembleMLP
from rl_training.spec import ProblemSpec


class MLPImitationModel(nn.Module):
    """With discrete actions a softmax and a value for every choice, else a Gaussian."""

    def __init__(
        self,
        spec: ProblemSpec,
        hidden_sizes: Sequence[int],
        num_critics: int = 2,
        *,
        init: Init = DEFAULT_INIT,
        **gaussian: Any,
    ) -> None:
        """`gaussian` holds further arguments of `GaussianActor`."""
        super().__init__()
        obs_dim, action_dim = spec.obs_dim, spec.action_dim
        self.actor: CategoricalActor | GaussianActor
        if spec.action_kind == "discrete":
            self.actor = CategoricalActor(obs_dim, action_dim, hidden_sizes, init)
            self.critic = EnsembleMLP(num_critics, obs_dim, hidden_sizes, action_dim, init=init)
        else:
            self.actor = GaussianActor(obs_dim, action_dim, hidden_sizes, init=init, **gaussian)
            self.critic = EnsembleMLP(num_critics, obs_dim + action_dim, hidden_sizes, init=init)
