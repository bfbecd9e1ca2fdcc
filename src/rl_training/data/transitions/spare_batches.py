"""Memory of batches that is used again as soon as nobody holds any of it.

To fill a batch that is there costs a tenth of making one: most of the time goes into its views.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rl_training.data.packing.layout import RowLayout
from rl_training.data.transitions.batch import Batch

KEPT = 2  # while one is learned from, the next is drawn


WriteRows = Callable[[NDArray[np.int64], NDArray[np.float32]], None]  # from where, into what


def on_cpu(device: torch.device | str | None) -> bool:
    if isinstance(device, str):
        device = torch.device(device)
    return device is None or device.type == "cpu"


class SpareBatch:
    """One batch, its views included, and whether it is free."""

    def __init__(self, size: int, layout: RowLayout) -> None:
        self.size = size
        rows, self._places = torch.empty(size, layout.width), torch.empty(size, dtype=torch.int64)
        self._rows, self._where = rows.numpy(), self._places.numpy()
        self.batch = Batch.from_rows(rows, layout)
        # discrete actions are int64, and so not in the rows themselves
        self._choices = self.batch.actions.numpy() if layout.discrete else None
        self._column = self._rows[:, layout.actions.start]
        # with one view those of all views of the rows
        self._changed = [self.batch.rewards, *([self.batch.actions] if layout.discrete else [])]
        del rows  # which counts are normal is found out with no reference but the batch's own
        tensors = [t for t in map(self.batch.__getattribute__, _TENSORS) if t is not None]
        self._held = (self.batch, *tensors)
        self._storages = {t.untyped_storage()._cdata for t in tensors}
        del tensors
        self._when_free = self._counts()

    def _counts(self) -> list[int]:
        """References to the batch and to its tensors, and tensors on their memory."""
        return [
            *map(sys.getrefcount, self._held),
            *map(torch._C._storage_Use_Count, self._storages),
        ]

    def is_free(self) -> bool:
        """Whether no one else has the batch, a tensor of it, a view or an array of one."""
        return self._counts() == self._when_free

    def fill(self, count: int, generator: torch.Generator | None, write: WriteRows) -> Batch:
        """With rows from the first `count`, drawn uniformly with replacement.

        Should a graph hold the batch unnoticed, going back through it is an error and not wrong.
        """
        self._places.random_(count, generator=generator)
        write(self._where, self._rows)
        if self._choices is not None:
            self._choices[:] = self._column
        torch._C._increment_version(self._changed)
        return self.batch


_TENSORS = (
    "obs", "actions", "rewards", "next_obs", "terminations", "next_actions", "next_action_valid", "_rows",
)  # fmt: skip


class SpareBatches:
    """The few batches that a learner goes through in turns."""

    def __init__(self, layout: RowLayout) -> None:
        self._layout = layout
        self._kept: list[SpareBatch] = []

    def __reduce__(self) -> Any:
        return type(self), (self._layout,)  # a copy has batches of its own

    def get(self, size: int) -> SpareBatch:
        """A free one of this size, or a new one."""
        for spare in self._kept:
            if spare.size == size and spare.is_free():
                return spare
        self._kept = [SpareBatch(size, self._layout), *self._kept[: KEPT - 1]]
        return self._kept[0]
