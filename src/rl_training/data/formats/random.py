"""Transitions of a uniformly random policy, for smoke tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rl_training.data.formats import DatasetFormat, register_format
from rl_training.data.packing.source import ArraySource

if TYPE_CHECKING:
    import gymnasium as gym

RANDOM_ROWS = 10_000  # if `dataset_size` is not given


@contextmanager
def open_random(
    env: gym.Env[Any, Any], dataset_size: int = RANDOM_ROWS, dataset_seed: int = 0
) -> Iterator[ArraySource]:
    from rl_training.data.builtin.rows import env_name, random_rows

    yield ArraySource(random_rows(env, dataset_size, dataset_seed), env_name(env))


register_format(
    DatasetFormat(
        "random",
        open_random,
        keys=("dataset_size", "dataset_seed"),
        needs_env=True,
        derives_next_actions=True,
    )
)
