"""Ring of packed rows: written side by side by environments, chained into episodes, saved and restored."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_training.data.packing.layout import RowLayout
from rl_training.data.transitions.saved_replay import (
    check_saved_rows,
    following_rows,
    from_ring_order,
)

Rows = NDArray[np.float32]


def row_bytes(layout: RowLayout) -> int:
    """Bytes of one row of a ring: its columns, the following row, the environment, a flag."""
    return 4 * layout.width + 8 + 4 + 1


class RowRing:
    """The newest `capacity` rows. Each knows the row that followed it in its episode, if any."""

    def __init__(self, capacity: int, layout: RowLayout, num_envs: int) -> None:
        if capacity < num_envs:
            raise ValueError(f"capacity {capacity} is less than one row for each of {num_envs}")
        self.capacity, self.layout = capacity, layout
        # the system hands out memory when it is first written to
        self._rows = torch.empty(capacity, layout.width)
        self._following = torch.empty(capacity, dtype=torch.int64)  # next row of the episode, or -1
        self._env_ids = torch.empty(capacity, dtype=torch.int32)
        self._first = torch.empty(capacity, dtype=torch.bool)  # rows that begin an episode
        self._total = 0  # rows written so far; number n of them lies at position n % capacity
        self._latest = np.full(num_envs, -1)  # number of the newest row of each running episode
        self._position = self._size = 0
        self._see_as_arrays()

    def _see_as_arrays(self) -> None:
        self._written = (
            self._rows.numpy(), self._following.numpy(), self._env_ids.numpy(), self._first.numpy(),
        )  # fmt: skip

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_written"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._see_as_arrays()  # of a copy, its own

    def __len__(self) -> int:
        return self._size

    # -- writing ------------------------------------------------------------------------------

    def new_rows(self, count: int) -> Rows:
        """An array for `add_rows`, to be filled by the columns of `layout`."""
        return np.empty((count, self.layout.width), np.float32)

    def add_rows(self, rows: Rows, env_ids: NDArray[np.int64]) -> None:
        """Add packed rows, one for each of these environments."""
        count, start = len(rows), self._position
        if count > self.capacity:
            raise ValueError(f"{count} rows do not fit into a buffer of {self.capacity}")
        oldest = self._total + count - self.capacity  # what is left of the ring after this call
        if start + count <= self.capacity:
            self._write(slice(start, start + count), rows, env_ids, oldest)
        else:
            first = self.capacity - start
            self._write(slice(start, self.capacity), rows[:first], env_ids[:first], oldest)
            self._write(slice(0, count - first), rows[first:], env_ids[first:], oldest)
        self._position = (start + count) % self.capacity
        self._size = min(self._size + count, self.capacity)

    def _write(self, target: slice, rows: Rows, env_ids: NDArray[np.int64], oldest: int) -> None:
        stored, following, owners, _ = self._written
        stored[target] = rows
        owners[target] = env_ids
        following[target] = -1
        number = self._total
        self._total = number + len(rows)
        if len(rows) == 1:  # plain numbers cost a fifth of what arrays of one do
            self._link(number, target.start, int(env_ids[0]), rows[0], oldest)
            return
        before = self._latest[env_ids]
        self._written[3][target] = before < 0
        goes_on = before >= max(oldest, 0)
        following[before[goes_on] % self.capacity] = np.flatnonzero(goes_on) + target.start
        ended = (rows[:, self.layout.termination] + rows[:, self.layout.truncation]) > 0
        self._latest[env_ids] = np.where(ended, -1, np.arange(number, self._total))

    def _link(self, number: int, position: int, env_id: int, row: Rows, oldest: int) -> None:
        """Chain a row to its environment's last; it is now the last unless the episode ended."""
        before = self._latest.item(env_id)
        self._written[3][position] = before < 0
        if before >= 0 and before >= oldest:
            self._written[1][before % self.capacity] = position
        ended = row.item(self.layout.termination) or row.item(self.layout.truncation)
        self._latest[env_id] = -1 if ended else number

    def begin_episode(self, env_id: int) -> None:
        """Begin an episode with the next row of this environment."""
        self._latest[env_id] = -1

    def ends(self, numbers: range) -> tuple[Tensor, Tensor]:
        """Return which rows, by number, terminated their episode, and which truncated it."""
        rows = self._rows[torch.arange(numbers.start, numbers.stop) % self.capacity]
        return rows[:, self.layout.termination] > 0, rows[:, self.layout.truncation] > 0

    def in_episode(self, env_id: int) -> bool:
        """True if this environment's next row follows on from its last."""
        return bool(self._latest[env_id] >= 0)

    # -- checkpoints --------------------------------------------------------------------------

    @property
    def numbers(self) -> range:
        """Numbers of the stored rows, counted from the first row ever written."""
        return range(self._total - self._size, self._total)

    def columns_of(self, numbers: range) -> dict[str, Tensor]:
        """Copy stored rows by their numbers: all that never changes once they are written."""
        positions = torch.arange(numbers.start, numbers.stop) % self.capacity
        return {name: column[positions] for name, column in self._columns().items()}

    def _columns(self) -> dict[str, Tensor]:
        return {"rows": self._rows, "env_ids": self._env_ids, "first": self._first}

    def changing_state(self) -> dict[str, Tensor]:
        """Tensors that belong to the moment; together with the columns they are the buffer."""
        return {"latest": torch.from_numpy(self._latest.copy()), "total": torch.tensor(self._total)}

    def state_dict(self) -> dict[str, Tensor]:
        return {**self.columns_of(self.numbers), **self.changing_state()}

    def load_state_dict(self, tensors: dict[str, Tensor]) -> None:
        """Take back `state_dict`, also that of a version that saved the ring in its own order."""
        if "position" in tensors:
            tensors = from_ring_order(tensors, self.capacity)
        check_saved_rows(tensors, self._columns(), self.capacity, len(self._latest))
        self._size, self._total = len(tensors["rows"]), int(tensors["total"])
        self._position = self._total % self.capacity
        positions = self._stored_positions()
        for name, column in self._columns().items():
            column[positions] = tensors[name]
        self._following[positions] = following_rows(positions, tensors["env_ids"], tensors["first"])
        self._latest = tensors["latest"].numpy().copy()

    def _stored_positions(self) -> Tensor:
        return torch.arange(self.numbers.start, self.numbers.stop) % self.capacity
