"""Small Minari datasets, written where `MINARI_DATASETS_PATH` says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

GOALS = spaces.Dict(
    {
        "achieved_goal": spaces.Box(-np.inf, np.inf, (2,), np.float64),
        "desired_goal": spaces.Box(-np.inf, np.inf, (2,), np.float64),
        "observation": spaces.Box(-np.inf, np.inf, (27,), np.float64),
    }
)


def _box(width: int, bound: float = np.inf, dtype: Any = np.float64) -> spaces.Box:
    return spaces.Box(-bound, bound, (width,), dtype)


# observations and actions of the public datasets that packaged configurations name
PUBLIC = {
    "D4RL/antmaze/umaze-v1": (GOALS, _box(8, 1, np.float32)),
    "mujoco/halfcheetah/medium-v0": (_box(17), _box(6, 1, np.float32)),
    "mujoco/hopper/medium-v0": (_box(11), _box(3, 1, np.float32)),
    "mujoco/walker2d/medium-v0": (_box(17), _box(6, 1, np.float32)),
}


def write_minari(
    dataset_id: str,
    lengths: list[int],
    *,
    obs_space: Any,
    action_space: Any,
    open_last: bool = False,
) -> Any:
    """Write episodes that alternate between truncation and termination."""
    minari = pytest.importorskip("minari", reason="needs the extra minari")
    buffers = []
    for number, length in enumerate(lengths):
        obs_space.seed(number)
        action_space.seed(number)
        last = np.arange(length) == length - 1
        ends = not (open_last and number == len(lengths) - 1)
        observations = [obs_space.sample() for _ in range(length + 1)]
        joined: Any = (
            {key: np.stack([obs[key] for obs in observations]) for key in obs_space.spaces}
            if isinstance(obs_space, spaces.Dict)
            else np.stack(observations)
        )
        buffers.append(
            minari.data_collector.EpisodeBuffer(
                observations=joined,
                actions=np.stack([action_space.sample() for _ in range(length)]),
                rewards=np.arange(length, dtype=np.float64),
                terminations=last & (number % 2 == 1) & ends,
                truncations=last & (number % 2 == 0) & ends,
            )
        )
    return minari.create_dataset_from_buffers(
        dataset_id, buffers, observation_space=obs_space, action_space=action_space,
        algorithm_name="none", author="us", author_email="us@example.org", code_permalink="none",
        description="made by a test",
    )  # fmt: skip


def write_public(dataset_id: str) -> None:
    """Write a small dataset of the form of a public one, under its name."""
    obs_space, action_space = PUBLIC[dataset_id]
    write_minari(dataset_id, [9, 12, 5], obs_space=obs_space, action_space=action_space)
