"""Saved replay: rows in the order of writing, checked, and chained into episodes again."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from rl_training.config import CheckpointError


def check_saved_rows(
    tensors: Mapping[str, Tensor], columns: Mapping[str, Tensor], capacity: int, num_envs: int
) -> None:
    """Refuse saved rows that do not fit the columns of a buffer, or contradict each other."""
    missing = {*columns, "total", "latest"} - tensors.keys()
    if missing:
        raise CheckpointError(f"the saved replay lacks {', '.join(sorted(missing))}")
    count = len(tensors["rows"])
    for name, column in columns.items():
        saved = tensors[name]
        if saved.shape != (count, *column.shape[1:]) or saved.dtype != column.dtype:
            raise CheckpointError(
                f"{name!r} of the saved replay has shape {tuple(saved.shape)}, which does not fit a "
                f"buffer of {capacity} rows with {tuple(column.shape[1:]) or 'one number'} each"
            )
    if count != min(int(tensors["total"]), capacity):
        raise CheckpointError(
            f"the saved replay has {count} of {int(tensors['total'])} rows, which does not fit a "
            f"buffer of {capacity} rows"
        )
    latest, env_ids = tensors["latest"], tensors["env_ids"]
    if latest.shape != (num_envs,) or latest.dtype != torch.int64:
        raise CheckpointError(f"the saved replay is not one of {num_envs} environments")
    if count and not (0 <= int(env_ids.min()) <= int(env_ids.max()) < num_envs):
        raise CheckpointError(f"the saved replay has rows of other than {num_envs} environments")


def following_rows(positions: Tensor, env_ids: Tensor, first: Tensor) -> Tensor:
    """Position of each row's successor in its episode, or -1; rows in the order of writing."""
    following = torch.full_like(positions, -1)
    by_env = torch.sort(env_ids, stable=True).indices
    earlier, later = by_env[:-1], by_env[1:]
    chained = (env_ids[earlier] == env_ids[later]) & ~first[later]
    following[earlier[chained]] = positions[later[chained]]
    return following


def from_ring_order(tensors: Mapping[str, Tensor], capacity: int) -> dict[str, Tensor]:
    """Convert a replay that was saved in the order of the ring, with successors by position."""
    size, position = len(tensors["rows"]), int(tensors["position"])
    full = size == capacity
    if not 0 <= position < capacity or not (full or position == size):
        raise CheckpointError(f"the saved replay has {size} rows but ends at position {position}")
    total = capacity + position if full else size
    if "step" in tensors:  # hindsight counts steps of all environments
        total = int(tensors["step"]) * len(tensors["latest"])
    order = (torch.arange(size) + position) % capacity if full else torch.arange(size)
    following = tensors["following"]
    first = torch.ones(size, dtype=torch.bool)
    first[following[following >= 0]] = False
    latest, newest = tensors["latest"], total - 1
    numbers = newest - (newest - latest) % capacity
    per_row = {
        name: tensors[name][order]
        for name in ("rows", "env_ids", "episodes", "priorities")
        if name in tensors
    }
    others = {name: tensors[name] for name in ("running", "largest_priority") if name in tensors}
    return {
        **per_row,
        **others,
        "first": first[order],
        "latest": torch.where(latest >= 0, numbers, -1),
        "total": torch.tensor(total),
    }
