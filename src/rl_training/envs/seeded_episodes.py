"""Repeatable episodes: seeded by their number; a running one is restored by its actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from rl_training.envs.errors import InterfaceError

Snapshot = Mapping[str, Any]  # episode: int; actions: the ones since its reset


class SeededEpisodes(gym.Wrapper[Any, Any, Any, Any]):
    """Seeds episode number k of environment i from (seed, i, k), whoever resets it.

    A deterministic environment is then in the same state whenever the same episode has seen the same
    actions. That is how a run resumes in mid-episode without any help of the environment.
    """

    def __init__(self, env: gym.Env[Any, Any], seed: int, index: int = 0) -> None:
        super().__init__(env)
        self.seed, self.index = seed, index
        self.episode = -1
        self._shape = self.observation_space.shape  # None for a Dict, whose parts are not checked

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin the next episode; its seed comes from the counter, whatever `seed` says."""
        del seed
        self.episode += 1
        return self._reset(options)

    def _reset(self, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        words = np.random.SeedSequence([self.seed, self.index, self.episode]).generate_state(1)
        seed = int(words[0])
        # an environment may draw from its action space, which has a generator of its own
        self.env.action_space.seed(seed)
        obs, info = self.env.reset(seed=seed, options=options)
        self._check_shape(obs, "reset")
        return obs, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step, and check what vector environments would store unseen or refuse in numpy's words."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._check_shape(obs, "step")
        try:
            number = float(reward)
        except (TypeError, ValueError):
            text = f"step() returned the reward {reward!r}, which must be one number"
            raise InterfaceError(text) from None
        if terminated or truncated:
            obs = np.array(obs)  # the reset that follows may write into the same array
        return obs, number, terminated, truncated, info

    def _check_shape(self, obs: Any, method: str) -> None:
        if np.shape(obs) != self._shape and self._shape is not None:
            raise InterfaceError(
                f"{method}() returned an observation of shape {np.shape(obs)}, but observation_space "
                f"has shape {self._shape}: change one of them"
            )

    def restore(self, snapshots: Sequence[Snapshot]) -> Any:
        """Play this environment's snapshot again; return the observation it leads to."""
        snapshot = snapshots[self.index]
        self.episode = int(snapshot["episode"])
        obs, _ = self._reset()
        for action in snapshot["actions"]:
            obs, _, terminated, truncated, _ = self.env.step(action)
            if terminated or truncated:  # not the episode that it was
                break
        return obs

    def restart(self, which: Sequence[bool]) -> Any:
        """Begin a new episode if told to; return its first observation, else None."""
        return self.reset()[0] if which[self.index] else None
