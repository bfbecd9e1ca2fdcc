"""Acting: a learner's policy on tensors and on arrays, with and without exploration."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from rl_training.models.actors import Actor, CategoricalActor
from rl_training.models.numpy_forward import NumpyFunction
from rl_training.spec import ProblemSpec


class Acting(nn.Module):
    """Actions of a network called `actor`, in [-1, 1] or numbered from 0."""

    actor: Any
    spec: ProblemSpec
    device: torch.device
    generator: torch.Generator

    @torch.no_grad()
    def act(
        self, obs: Tensor, *, explore: bool = False, generator: torch.Generator | None = None
    ) -> Tensor:
        """Actions for normalised observations (batch, obs_dim)."""
        actor: Actor = self.actor
        if explore:
            return actor.sample(obs, self.generator if generator is None else generator)
        return actor.mode(obs)

    @property
    def draws_without_exploring(self) -> bool:
        """True if `act` draws actions even without `explore`."""
        return False

    @torch.no_grad()
    def choice_probabilities(self, obs: Tensor, *, explore: bool = False) -> Tensor:
        """Probabilities (batch, choices) of discrete actions; all on the best one without `explore`."""
        if explore and isinstance(self.actor, CategoricalActor):
            probabilities: Tensor = self.actor(obs).exp()
            return probabilities
        return F.one_hot(self.act(obs), self.spec.action_dim).float()

    @torch.no_grad()
    def log_prob(self, obs: Tensor, actions: Tensor) -> Tensor | None:
        """Log-probability (batch,) of actions that the policy draws; None if it draws none."""
        if not hasattr(self.actor, "log_prob"):
            return None
        log_prob: Tensor = self.actor.log_prob(obs, actions)
        return log_prob

    def explore(
        self, obs: NDArray[np.float32], rng: np.random.Generator, progress: float
    ) -> NDArray[Any]:
        """Actions to collect data with in states (envs, obs_dim).

        All randomness is from `rng`; `progress`, from 0 to 1, is the share of the budget gone by.
        """
        del progress
        if self.device.type == "cpu" and hasattr(self.actor, "sample_numpy"):
            return self.actor.sample_numpy(obs, rng)
        generator = torch.Generator(self.device)
        generator.manual_seed(int(rng.integers(2**63)))
        states = torch.from_numpy(obs).to(self.device)
        return self.act(states, explore=True, generator=generator).cpu().numpy()

    def best_actions(self, obs: NDArray[np.float32]) -> NDArray[Any]:
        """Most likely actions in states (envs, obs_dim), for policies that explore around them."""
        if self.device.type == "cpu" and hasattr(self.actor, "mode_numpy"):
            return self.actor.mode_numpy(obs)
        return self.act(torch.from_numpy(obs).to(self.device)).cpu().numpy()

    def epsilon_greedy(
        self, obs: NDArray[np.float32], rng: np.random.Generator, epsilon: float
    ) -> NDArray[Any]:
        """Best actions, or with chance `epsilon` in each state a choice drawn uniformly."""
        choices = self.spec.action_dim
        if len(obs) == 1:  # without arrays, at half the cost
            chance = rng.random() < epsilon
            return rng.integers(choices, size=1) if chance else self.best_actions(obs)
        at_random = rng.random(len(obs)) < epsilon
        count = np.count_nonzero(at_random)
        if count == 0:
            return self.best_actions(obs)
        drawn = rng.integers(choices, size=count)
        if count == len(obs):
            return drawn
        actions = self.best_actions(obs)
        actions[at_random] = drawn
        return actions

    def after_collecting(self, before: int, after: int) -> None:
        """Hook for what counts environment steps: their number before and after collecting."""

    def numpy_policy(self) -> NumpyFunction | None:
        """The deterministic policy on arrays, where the actor offers one."""
        build = getattr(self.actor, "as_numpy", None)
        return None if build is None else build()
