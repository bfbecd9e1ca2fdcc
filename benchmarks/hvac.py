"""Heating of a room: an environment with columns of very different scale, and logs of a thermostat.

Observations are raw sensor values: indoor and outdoor temperature in kelvin, the price of energy per
kilowatt-hour, and the air pressure in pascal, which means nothing. Their sizes are 290, 280, 0.1 and
100,000. The reward is minus discomfort minus the cost of heating.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

STEPS = 96  # a day in quarters of an hour
SET_POINT = 294.0
LEVELS = (0.0, 0.5, 1.0)  # shares of the heater's power, the discrete actions
HABITS = (-1.5, 2.5)  # range of what an operator adds to the set point: most have it too warm
RANDOM_SHARE = 0.2  # of the thermostat's choices


class Heating(gym.Env[Any, Any]):
    """Choose one of three levels of the heater, once per quarter of an hour."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)
    action_space: gym.spaces.Space[Any] = gym.spaces.Discrete(len(LEVELS))

    def reset(
        self, *, seed: int | None = None, options: Any = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        self.shift = self.np_random.uniform(0, 2 * np.pi)
        self.cold = self.np_random.uniform(274, 282)
        self.indoor = SET_POINT + self.np_random.normal(0, 2)
        return self._observe(), {}

    def step(self, action: Any) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        power = self.power(action)
        reward = -0.17 * abs(self.indoor - SET_POINT) - 2.0 * self.price * power
        drift = 0.1 * (self.outdoor - self.indoor) + 3.0 * power
        self.indoor += drift + self.np_random.normal(0, 0.2)
        self.time += 1
        return self._observe(), float(reward), False, self.time >= STEPS, {}

    def power(self, action: Any) -> float:
        return LEVELS[int(action)]

    def _observe(self) -> NDArray[np.float32]:
        phase = self.shift + 2 * np.pi * self.time / STEPS
        self.outdoor = self.cold + 4 * np.sin(phase)
        self.price = 0.15 + 0.1 * np.sin(2 * phase) + self.np_random.normal(0, 0.005)
        pressure = 101_325 + self.np_random.normal(0, 500)
        return np.array([self.indoor, self.outdoor, self.price, pressure], np.float32)


class HeatingPower(Heating):
    """The same room with a heater of any power from 0 to 1."""

    action_space = gym.spaces.Box(0.0, 1.0, (1,), np.float32)

    def power(self, action: Any) -> float:
        return float(np.clip(action[0], 0, 1))


def thermostat(env: Heating, wanted: float, rng: np.random.Generator) -> Any:
    """Heat below the wanted temperature and not above it; some of the choices are random."""
    continuous = isinstance(env, HeatingPower)
    if rng.random() < RANDOM_SHARE:
        return rng.random(1, np.float32) if continuous else int(rng.integers(len(LEVELS)))
    power = float(np.clip((wanted - env.indoor) / 2, 0, 1))
    if continuous:
        return np.array([power], np.float32)
    return 2 if power > 0 else 0


def write_log(path: Path, env: Heating, *, rows: int = 20_000, seed: int = 0) -> float:
    """Log the thermostat into an `.npz`; returns the mean return of its episodes."""
    rng = np.random.default_rng(seed)
    episodes = rows // STEPS
    columns: dict[str, list[Any]] = {
        name: [] for name in ("obs", "actions", "rewards", "next_obs", "truncations")
    }
    for episode in range(episodes):
        obs, _ = env.reset(seed=seed * 1_000_003 + episode)
        wanted, truncated = SET_POINT + rng.uniform(*HABITS), False
        while not truncated:
            action = thermostat(env, wanted, rng)
            after, reward, _, truncated, _ = env.step(action)
            row = (obs, action, reward, after, truncated)
            for column, value in zip(columns.values(), row, strict=True):
                column.append(value)
            obs = after
    arrays = {name: np.array(values) for name, values in columns.items()}
    arrays["terminations"] = np.zeros(len(arrays["rewards"]), np.bool_)
    np.savez(path, **arrays)
    return float(arrays["rewards"].sum() / episodes)
