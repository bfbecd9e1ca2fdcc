"""Two small environments with goals that need no other package.

`RL-PointGoal-v0` and `RL-BitFlip-v0` are known to gymnasium once `rl_training.envs` is imported.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

Array = NDArray[np.float32]
GoalObservation = dict[str, Any]  # arrays


class _GoalEnv(gym.Env[Any, Any]):
    """A state that is to equal a goal; the reward is 0 where it does, else -1."""

    state: Array
    goal: Array

    def __init__(self, low: float, high: float, size: int) -> None:
        part = spaces.Box(low, high, (size,), np.float32)
        names = ("observation", "achieved_goal", "desired_goal")
        self.observation_space = spaces.Dict(dict.fromkeys(names, part))

    def compute_reward(self, achieved_goal: Array, desired_goal: Array, info: Any) -> Any:
        """Rewards of one pair of goals, or of many in the rows of arrays; `info` is ignored."""
        return np.where(self._apart(achieved_goal, desired_goal), -1.0, 0.0)

    def _apart(self, achieved: Array, desired: Array) -> Any:
        raise NotImplementedError

    def _observe(self) -> GoalObservation:
        return {
            "observation": self.state.copy(),
            "achieved_goal": self.state.copy(),
            "desired_goal": self.goal.copy(),
        }

    def _outcome(self) -> tuple[GoalObservation, float, bool, bool, dict[str, Any]]:
        reward = float(self.compute_reward(self.state, self.goal, {}))
        return self._observe(), reward, False, False, {"is_success": reward == 0}


class PointGoalEnv(_GoalEnv):
    """A point in a box, [-1, 1] in every direction, that is to come to and stay at a goal.

    An action moves it by up to 0.1 in each of `dimensions` directions. It is at the goal within a
    distance of `threshold`. Registered with a limit of 50 steps, of which the longest way takes 20.
    """

    def __init__(self, dimensions: int = 2, threshold: float = 0.05) -> None:
        if dimensions < 1:
            raise ValueError(f"dimensions must be >= 1, got {dimensions}")
        if not threshold > 0:
            raise ValueError(f"threshold must be > 0, got {threshold}")
        super().__init__(-1.0, 1.0, dimensions)
        self.dimensions, self.threshold = dimensions, threshold
        self.action_space = spaces.Box(-1.0, 1.0, (dimensions,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[GoalObservation, dict[str, Any]]:
        super().reset(seed=seed)
        draws = self.np_random.uniform(-1, 1, (2, self.dimensions))
        self.state, self.goal = draws.astype(np.float32)
        return self._observe(), {}

    def step(self, action: Any) -> tuple[GoalObservation, float, bool, bool, dict[str, Any]]:
        move = np.float32(0.1) * np.clip(np.asarray(action, np.float32), -1, 1)
        self.state = np.clip(self.state + move, np.float32(-1), np.float32(1))
        return self._outcome()

    def _apart(self, achieved: Array, desired: Array) -> Any:
        return np.linalg.norm(achieved - desired, axis=-1) > self.threshold


class BitFlipEnv(_GoalEnv):
    """`bits` switches that are to be set as the goal says; an action flips one of them.

    An episode lasts as many steps as there are bits. Chance finds the goal in about one of
    2^bits / bits episodes, so that for more than a dozen bits there is no reward to learn from.
    """

    def __init__(self, bits: int = 12) -> None:
        if bits < 1:
            raise ValueError(f"bits must be >= 1, got {bits}")
        super().__init__(0.0, 1.0, bits)
        self.bits = bits
        self.action_space = spaces.Discrete(bits)
        self._time = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[GoalObservation, dict[str, Any]]:
        super().reset(seed=seed)
        self.state, self.goal = self.np_random.integers(0, 2, (2, self.bits)).astype(np.float32)
        self._time = 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[GoalObservation, float, bool, bool, dict[str, Any]]:
        self.state[action] = 1 - self.state[action]
        self._time += 1
        obs, reward, terminated, _, info = self._outcome()
        return obs, reward, terminated, self._time >= self.bits, info

    def _apart(self, achieved: Array, desired: Array) -> Any:
        return (achieved != desired).any(-1)


def register_goal_envs() -> None:
    """Make them known to gymnasium; a second time changes nothing."""
    for name, limit in (("PointGoal", 50), ("BitFlip", None)):
        if f"RL-{name}-v0" not in gym.registry:
            gym.register(
                f"RL-{name}-v0", entry_point=f"{__name__}:{name}Env", max_episode_steps=limit
            )
