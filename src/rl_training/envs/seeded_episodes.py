"""Repeatable episodes: seeded by their number; a running one is restored by its actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from rl_training.envs.step_checks import check_shape, reward_number

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
        self._shape = self.observation_space.shape

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
        check_shape(obs, self._shape, "reset")
        return obs, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step, and check what vector environments would store unseen or refuse in numpy's words."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        if type(obs) is not np.ndarray or obs.shape != self._shape:  # half the cost of the call
            check_shape(obs, self._shape, "step")
        if terminated or truncated:
            obs = np.array(obs)  # the reset that follows may write into the same array
        return obs, reward_number(reward), terminated, truncated, info

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
