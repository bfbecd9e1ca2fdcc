"""Memory of the batches that one learner goes through, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rl_training.data.packing.layout import RowLayout
from rl_training.data.transitions.batch import Batch

WriteRows = Callable[[NDArray[np.int64], NDArray[np.float32]], None]  # from where, into what


class BatchMemory:
    """One batch at a fixed address: it is valid until the next one is drawn into it.

    Filling a batch that is there costs a tenth of making one: most of the time goes into its views.
    """

    def __init__(self) -> None:
        self._form: tuple[RowLayout, int] | None = None

    def __reduce__(self) -> Any:
        return type(self), ()  # a copy has memory of its own

    def draw(
        self,
        layout: RowLayout,
        size: int,
        count: int,
        generator: torch.Generator | None,
        write: WriteRows,
    ) -> Batch:
        """Fill with `size` of the first `count` rows, drawn uniformly with replacement."""
        if self._form is None or self._form[1] != size or self._form[0] is not layout:
            self._allocate(layout, size)
        self._positions.random_(count, generator=generator)
        write(self._where, self._rows)
        if self._choices is not None:
            self._choices[:] = self._column
        return self._batch

    def _allocate(self, layout: RowLayout, size: int) -> None:
        self._form = (layout, size)
        rows, self._positions = (
            torch.empty(size, layout.width),
            torch.empty(size, dtype=torch.int64),
        )
        self._rows, self._where = rows.numpy(), self._positions.numpy()
        self._batch = Batch.from_rows(rows, layout)
        # discrete actions are int64, and so not in the rows themselves
        self._choices = self._batch.actions.numpy() if layout.discrete else None
        self._column = self._rows[:, layout.actions.start]


def on_cpu(device: torch.device | str | None) -> bool:
    if isinstance(device, str):
        device = torch.device(device)
    return device is None or device.type == "cpu"
