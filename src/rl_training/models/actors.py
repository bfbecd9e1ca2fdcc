"""Policies over actions in [-1, 1]: deterministic, and Gaussian without squashing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rl_training.models.distributions import gaussian_log_prob
from rl_training.models.networks import MLP, NumpyFunction


class Actor(Protocol):
    """What acting needs of a policy network; `obs` is (batch, obs_dim)."""

    def mode(self, obs: Tensor) -> Tensor: ...

    def sample(self, obs: Tensor, generator: torch.Generator) -> Tensor: ...


class DeterministicActor(nn.Module):
    """tanh(MLP(obs)): the actor of TD3 and its descendants."""

    def __init__(self, obs_dim: int, action_dim: int, hidden_sizes: Sequence[int]) -> None:
        super().__init__()
        self.net = MLP(obs_dim, hidden_sizes, action_dim)

    def forward(self, obs: Tensor) -> Tensor:
        return torch.tanh(self.net(obs))

    def mode(self, obs: Tensor) -> Tensor:
        return self(obs)

    def sample(self, obs: Tensor, generator: torch.Generator) -> Tensor:
        """The mode: a deterministic policy has nothing to draw."""
        del generator
        return self(obs)

    def as_numpy(self) -> NumpyFunction:
        return _tanh_of(self.net)


class GaussianActor(nn.Module):
    """N(tanh(MLP(obs)), σ²) with one learned σ per dimension, independent of the state.

    Not squashed: the log-density of a logged action at the bounds stays finite.
    """

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        hidden_sizes: Sequence[int],
        log_std_bounds: tuple[float, float] = (-5.0, 2.0),
    ) -> None:
        super().__init__()
        self.net = MLP(obs_dim, hidden_sizes, action_dim)
        self.log_std = nn.Parameter(torch.zeros(action_dim))
        self.log_std_bounds = log_std_bounds

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Mean (batch, action_dim) and log standard deviation (action_dim,)."""
        return torch.tanh(self.net(obs)), self.log_std.clamp(*self.log_std_bounds)

    def log_prob(self, obs: Tensor, actions: Tensor) -> Tensor:
        mean, log_std = self(obs)
        return gaussian_log_prob(mean, log_std, actions)

    def mode(self, obs: Tensor) -> Tensor:
        return torch.tanh(self.net(obs))

    def sample(self, obs: Tensor, generator: torch.Generator) -> Tensor:
        """A draw, clipped to the action range."""
        mean, log_std = self(obs)
        noise = torch.randn(mean.shape, generator=generator, device=generator.device)
        return (mean + log_std.exp() * noise.to(mean.device)).clamp(-1, 1)

    def as_numpy(self) -> NumpyFunction:
        return _tanh_of(self.net)


def _tanh_of(net: MLP) -> NumpyFunction:
    forward = net.as_numpy()

    def act(obs: NDArray[np.float32]) -> NDArray[np.float32]:
        x = forward(obs)
        return np.tanh(x, out=x)

    return act
