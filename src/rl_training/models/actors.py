"""Policies: deterministic, Gaussian, squashed Gaussian over [-1, 1], categorical, and greedy.

Each acts on tensors (`mode`, `sample`) and on NumPy arrays: `mode_numpy` and `sample_numpy` read the
weights as they are, `as_numpy` copies them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from rl_training.models.distributions import (
    atanh_clipped,
    drawn_log_prob,
    gaussian_log_prob,
    squashed_gaussian_log_prob,
)
from rl_training.models.dueling import DuelingMLP
from rl_training.models.init import DEFAULT_INIT, Init
from rl_training.models.mlp import MLP
from rl_training.models.numpy_forward import Array, NumpyFunction, live, numpy_mlp


class Actor(Protocol):
    """A policy network, as acting sees it; `obs` is (batch, obs_dim)."""

    def mode(self, obs: Tensor) -> Tensor: ...

    def sample(self, obs: Tensor, generator: torch.Generator) -> Tensor: ...


def _normal(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(like.shape, generator=generator, device=generator.device).to(like.device)


def _clip(x: Tensor, low: float, high: float) -> Tensor:
    """Clip as `clamp` does, whose gradient takes four operations instead of one."""
    return F.hardtanh(x, low, high)


class NetworkActor(nn.Module):
    """Base of policies that are one perceptron and a function of its outputs."""

    net: MLP

    def mode_of(self, outputs: Array) -> NDArray[Any]:
        """Most likely actions for the network's outputs, as arrays."""
        raise NotImplementedError

    def mode_numpy(self, obs: Array) -> NDArray[Any]:
        return self.mode_of(live(self.net)(obs))

    def as_numpy(self) -> NumpyFunction:
        return _composed(numpy_mlp(self.net, copies=True), self.mode_of)


def _composed(first: NumpyFunction, second: NumpyFunction) -> NumpyFunction:
    return lambda obs: second(first(obs))


class DeterministicActor(NetworkActor):
    """tanh(MLP(obs)): the actor of TD3 and its descendants."""

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        hidden_sizes: Sequence[int],
        init: Init = DEFAULT_INIT,
    ) -> None:
        super().__init__()
        self.net = MLP(obs_dim, hidden_sizes, action_dim, init)

    def forward(self, obs: Tensor) -> Tensor:
        return torch.tanh(self.net(obs))

    def mode(self, obs: Tensor) -> Tensor:
        return self(obs)

    def sample(self, obs: Tensor, generator: torch.Generator) -> Tensor:
        """Return the mode: a deterministic policy has nothing to draw."""
        del generator
        return self(obs)

    def mode_of(self, outputs: Array) -> NDArray[Any]:
        return np.tanh(outputs, out=outputs)


class GaussianActor(NetworkActor):
    """N(tanh(MLP(obs)), σ²), not squashed: a logged action at the bounds has a finite log-density.

    σ is one learned number per dimension, or with `state_dependent_std` a second head. log σ is
    clipped to its bounds, or with `sigmoid_std` squashed into them, which starts in the middle and
    cannot get stuck at a bound.
    """

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        hidden_sizes: Sequence[int],
        log_std_bounds: tuple[float, float] = (-5.0, 2.0),
        *,
        state_dependent_std: bool = False,
        sigmoid_std: bool = False,
        init: Init = DEFAULT_INIT,
    ) -> None:
        super().__init__()
        self.action_dim = action_dim
        self.log_std_bounds = log_std_bounds
        self.sigmoid_std = sigmoid_std
        heads = 2 if state_dependent_std else 1
        self.net = MLP(obs_dim, hidden_sizes, heads * action_dim, init)
        self.log_std = None if state_dependent_std else nn.Parameter(torch.zeros(action_dim))

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Mean (batch, action_dim) and log standard deviation (action_dim,) or like the mean."""
        mean, log_std = self.net(obs), self.log_std
        if log_std is None:
            mean, log_std = mean.split(self.action_dim, -1)
        return torch.tanh(mean), self._bounded(log_std)

    def _bounded(self, log_std: Tensor) -> Tensor:
        low, high = self.log_std_bounds
        if self.sigmoid_std:
            return low + (high - low) * torch.sigmoid(log_std)
        return _clip(log_std, low, high)

    def log_prob(self, obs: Tensor, actions: Tensor) -> Tensor:
        mean, log_std = self(obs)
        return gaussian_log_prob(mean, log_std, actions)

    def draw(self, obs: Tensor, noise: Tensor) -> Tensor:
        """Actions of standard normal `noise` (..., batch, action_dim), clipped to [-1, 1]."""
        mean, log_std = self(obs)
        return (mean + log_std.exp() * noise).clamp(-1, 1)

    def mode(self, obs: Tensor) -> Tensor:
        return self(obs)[0]

    def sample(self, obs: Tensor, generator: torch.Generator) -> Tensor:
        """Draw actions, clipped to the action range."""
        mean, log_std = self(obs)
        return (mean + log_std.exp() * _normal(mean, generator)).clamp(-1, 1)

    def sample_numpy(self, obs: Array, rng: np.random.Generator) -> Array:
        outputs = live(self.net)(obs)
        raw = self.log_std
        log_std = outputs[:, self.action_dim :] if raw is None else raw.detach().numpy()
        std = self._bounded(torch.from_numpy(log_std)).exp().numpy()
        mean = np.tanh(outputs[:, : self.action_dim])
        return np.clip(mean + std * rng.standard_normal(mean.shape, np.float32), -1, 1)

    def mode_of(self, outputs: Array) -> NDArray[Any]:
        mean = outputs[..., : self.action_dim]
        return np.tanh(mean, out=mean)


class SquashedGaussianActor(NetworkActor):
    """tanh(N(μ(obs), σ(obs)²)): the actor of SAC and of CQL."""

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        hidden_sizes: Sequence[int],
        log_std_bounds: tuple[float, float] = (-20.0, 2.0),
        init: Init = DEFAULT_INIT,
    ) -> None:
        super().__init__()
        self.action_dim = action_dim
        self.log_std_bounds = log_std_bounds
        self.net = MLP(obs_dim, hidden_sizes, 2 * action_dim, init)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log standard deviation before the tanh, both (batch, action_dim)."""
        mean, log_std = self.net(obs).split(self.action_dim, -1)
        return mean, _clip(log_std, *self.log_std_bounds)

    def draw(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Reparameterised actions and their log-densities for `noise` (..., batch, action_dim)."""
        mean, log_std = self(obs)
        pre_tanh = torch.addcmul(mean, log_std.exp(), noise)
        return torch.tanh(pre_tanh), drawn_log_prob(log_std, noise, pre_tanh)

    def log_prob(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Log-densities of given actions, finite and smooth also at the bounds."""
        mean, log_std = self(obs)
        return squashed_gaussian_log_prob(mean, log_std, atanh_clipped(actions))

    def mode(self, obs: Tensor) -> Tensor:
        return torch.tanh(self(obs)[0])

    def sample(self, obs: Tensor, generator: torch.Generator) -> Tensor:
        mean, log_std = self(obs)
        return torch.tanh(mean + log_std.exp() * _normal(mean, generator))

    def sample_numpy(self, obs: Array, rng: np.random.Generator) -> Array:
        outputs = live(self.net)(obs)
        low, high = self.log_std_bounds
        std = np.exp(np.minimum(np.maximum(outputs[:, self.action_dim :], low), high))
        std *= rng.standard_normal(std.shape, np.float32)
        return np.tanh(outputs[:, : self.action_dim] + std)

    def mode_of(self, outputs: Array) -> NDArray[Any]:
        mean = outputs[..., : self.action_dim]
        return np.tanh(mean, out=mean)


class CategoricalActor(NetworkActor):
    """A choice among `num_actions`, numbered from 0."""

    def __init__(
        self,
        obs_dim: int,
        num_actions: int,
        hidden_sizes: Sequence[int],
        init: Init = DEFAULT_INIT,
    ) -> None:
        super().__init__()
        self.net = MLP(obs_dim, hidden_sizes, num_actions, init)

    def forward(self, obs: Tensor) -> Tensor:
        """Log-probabilities of every choice, (batch, num_actions)."""
        return torch.log_softmax(self.net(obs), -1)

    def log_prob(self, obs: Tensor, actions: Tensor) -> Tensor:
        return pick(self(obs), actions)

    def mode(self, obs: Tensor) -> Tensor:
        return self.net(obs).argmax(-1)

    def sample(self, obs: Tensor, generator: torch.Generator) -> Tensor:
        return choose(self(obs).exp(), generator)

    def sample_numpy(self, obs: Array, rng: np.random.Generator) -> NDArray[Any]:
        logits = live(self.net)(obs)
        # the largest of logits with Gumbel noise is a draw from their softmax
        return np.asarray((logits + rng.gumbel(size=logits.shape)).argmax(-1))

    def mode_of(self, outputs: Array) -> NDArray[Any]:
        return np.asarray(outputs.argmax(-1))


class GreedyActor:
    """The choice of highest value; no module, so that the critic's weights have one owner."""

    def __init__(self, critic: MLP | DuelingMLP) -> None:
        self.critic = critic

    def mode(self, obs: Tensor) -> Tensor:
        return self.critic(obs).argmax(-1)

    def sample(self, obs: Tensor, generator: torch.Generator) -> Tensor:
        """Return the mode: a greedy policy has nothing to draw."""
        del generator
        return self.mode(obs)

    def mode_numpy(self, obs: Array) -> NDArray[Any]:
        return np.asarray(self._values(live)(obs).argmax(-1))

    def as_numpy(self) -> NumpyFunction:
        values = self._values(lambda net: numpy_mlp(net, copies=True))
        return _composed(values, lambda q: np.asarray(q.argmax(-1)))

    def _values(self, forward: Callable[[MLP], NumpyFunction]) -> NumpyFunction:
        critic = self.critic
        return forward(critic) if isinstance(critic, MLP) else critic.as_numpy(forward)


def pick(values: Tensor, actions: Tensor) -> Tensor:
    """The entry of each row's action: values (..., batch, choices), actions (batch,)."""
    index = actions if values.ndim == 2 else actions.expand(values.shape[:-1])
    return values.gather(-1, index.unsqueeze(-1)).squeeze(-1)


def choose(probabilities: Tensor, generator: torch.Generator) -> Tensor:
    """Draw a choice from each row, (batch,)."""
    chosen = torch.multinomial(probabilities.to(generator.device), 1, generator=generator)
    return chosen.squeeze(-1).to(probabilities.device)
