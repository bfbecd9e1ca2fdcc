"""The work that all contestants are given: random transitions of one size, and an empty environment."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from rl_training.data import TransitionDataset

OBS_DIM, ACTION_DIM = 17, 6
HIDDEN = (256, 256)
BATCH = 256
EPISODE = 1_000
BLANK_ENV = "benchmarks.speed.problem:BlankEnv"

Fields = dict[str, NDArray[Any]]


def random_fields(rows: int, obs_dim: int = OBS_DIM, action_dim: int = ACTION_DIM) -> Fields:
    rng = np.random.default_rng(0)
    terminals = rng.random(rows) < 1 / EPISODE
    return {
        "observations": rng.standard_normal((rows, obs_dim), np.float32),
        "actions": rng.random((rows, action_dim), np.float32) * 2 - 1,
        "rewards": rng.standard_normal(rows, np.float32),
        "next_observations": rng.standard_normal((rows, obs_dim), np.float32),
        "terminals": terminals,
        "timeouts": (np.arange(1, rows + 1) % EPISODE == 0) & ~terminals,
    }


class BlankEnv(gym.Env[NDArray[np.float32], NDArray[np.float32]]):
    """Spaces and nothing else: what a learner needs to be built."""

    def __init__(self) -> None:
        self.observation_space = Box(-np.inf, np.inf, (OBS_DIM,), np.float32)
        self.action_space = Box(-1, 1, (ACTION_DIM,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(OBS_DIM, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(OBS_DIM, np.float32), 0.0, False, False, {}


@dataclass(frozen=True)
class Settings:
    """How much to measure, and where the peers are that are not on the package index."""

    rounds: int
    seconds: float  # CPU time of a turn
    rows: int
    quick: bool
    corl: Path | None
    cleanrl: Path | None


class Problem:
    """The data in every form that is asked for, each made once."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @cached_property
    def fields(self) -> Fields:
        return random_fields(self.settings.rows)

    @cached_property
    def dataset(self) -> TransitionDataset:
        return TransitionDataset.from_dict(self.fields)
