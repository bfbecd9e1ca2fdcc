"""Goal observations as vectors.

Such an environment gives a Dict of `observation`, `desired_goal` and `achieved_goal`, as those of
gymnasium-robotics do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rl_training.spec import GOAL_KEYS, flat_goals, goal_keys


def has_goals(space: spaces.Space[Any]) -> bool:
    """True for observations with a desired and an achieved goal."""
    return isinstance(space, spaces.Dict) and set(space.spaces) == set(GOAL_KEYS)


class FlatGoals(gym.ObservationWrapper[Any, Any, Any]):
    """Goal observations as one vector: observation, desired goal [, achieved goal]."""

    def __init__(self, env: gym.Env[Any, Any], *, achieved: bool = True) -> None:
        super().__init__(env)
        self.achieved = achieved
        parts = env.observation_space
        assert isinstance(parts, spaces.Dict)
        width = sum(spaces.flatdim(parts[key]) for key in goal_keys(achieved))
        self.observation_space = spaces.Box(-np.inf, np.inf, (width,), np.float32)

    def observation(self, observation: Mapping[str, Any]) -> NDArray[np.float32]:
        return flat_goals(observation, achieved=self.achieved)


def without_goals(env: gym.Env[Any, Any], *, achieved: bool = True) -> gym.Env[Any, Any]:
    """Flatten goal observations to vectors, as a policy sees them; other environments stay."""
    return FlatGoals(env, achieved=achieved) if has_goals(env.observation_space) else env
