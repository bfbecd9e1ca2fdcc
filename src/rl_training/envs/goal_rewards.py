"""Rewards and terminations that an environment would have given for other goals."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.config import EnvError, RunError
from rl_training.envs.env_config import EnvKwargs, parse_env_kwargs
from rl_training.envs.errors import naming_the_env
from rl_training.envs.factory import make_raw_env


class GoalReward:
    """Computes the reward that training would have given for another goal, wrappers included.

    It has an environment of its own, since those that collect may run in other processes. `info` is
    empty: a reward that needs more than the two goals cannot be computed in hindsight.

    Attributes:
        knows_terminations: The environment has `compute_terminated`.
    """

    def __init__(self, env_id: str, env_kwargs: EnvKwargs, goal_dim: int) -> None:
        self.env_id = env_id
        options = parse_env_kwargs(env_kwargs)
        self.shaping = options.training.reward
        env = make_raw_env(env_id, options)
        weakref.finalize(self, _close, env)  # nobody else closes it
        if not env.has_wrapper_attr("compute_reward"):
            raise EnvError(
                f"her: true needs rewards for other goals, but {env_id} has no method "
                "compute_reward(achieved_goal, desired_goal, info)"
            )
        self._compute = env.get_wrapper_attr("compute_reward")
        goals = np.zeros((goal_dim + 1, goal_dim), np.float32)
        with _saying_what_it_gets("compute_reward"):
            shape = self(goals, goals).shape
        if shape != (len(goals),):
            raise EnvError(
                f"her: true computes many rewards at once, but compute_reward of {env_id} gives "
                f"shape {shape} for {len(goals)} goals; it must be vectorised over the first axis"
            )
        ends: Any = None
        if env.has_wrapper_attr("compute_terminated"):
            ends = env.get_wrapper_attr("compute_terminated")
        self.knows_terminations = callable(ends)
        if self.knows_terminations:
            self._ends = ends
            self._ends_at_once = self._is_vectorised(goals)

    def __call__(
        self, achieved: NDArray[np.float32], desired: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Rewards (n,) of goals (n, goal_dim)."""
        with naming_the_env(self.env_id):
            rewards = np.asarray(self._compute(achieved, desired, {}), np.float64)
        return self.shaping.apply(rewards).astype(np.float32)

    def terminated(
        self, achieved: NDArray[np.float32], desired: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Terminations (n,), 0 or 1, of goals (n, goal_dim)."""
        with naming_the_env(self.env_id):
            if self._ends_at_once:
                return np.asarray(self._ends(achieved, desired, {}), np.float32)
            pairs = zip(achieved, desired, strict=True)
            return np.array([self._ends(one, other, {}) for one, other in pairs], np.float32)

    def _is_vectorised(self, goals: NDArray[np.float32]) -> bool:
        """Tell if `compute_terminated` takes many goals; that of gymnasium-robotics takes a pair."""
        with suppress(Exception):  # a method for a pair of goals may do anything with more
            if np.shape(self._ends(goals, goals, {})) == (len(goals),):
                return True
        with _saying_what_it_gets("compute_terminated"), naming_the_env(self.env_id):
            shape = np.shape(self._ends(goals[0], goals[0], {}))
        if shape != ():
            raise EnvError(
                f"her: true needs compute_terminated of {self.env_id} to give true or false for a "
                f"pair of goals, but it gives shape {shape}"
            )
        return False


@contextmanager
def _saying_what_it_gets(method: str) -> Iterator[None]:
    try:
        yield
    except RunError as error:
        raise EnvError(
            f"her: true calls {method} with two goals and an empty info; with these {error}"
        ) from error.__cause__


def _close(env: Any) -> None:
    with suppress(Exception, SystemExit):  # nothing depends on it any more
        env.close()
