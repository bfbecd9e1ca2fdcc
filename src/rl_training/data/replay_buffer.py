"""Experience replay: packed rows in a ring buffer, in the units that learners see.

A vector step is one copy into the ring, a batch one gather from it. Each row knows the row that
followed it in its episode, so that n-step returns never cross an episode's end, another
environment's rows, or the place where new rows overwrite old ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from rl_training.config import DatasetError
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.packing.layout import RowLayout
from rl_training.data.transitions.batch import Batch
from rl_training.data.transitions.batch_memory import BatchMemory, on_cpu
from rl_training.data.transitions.saved_replay import (
    check_saved_rows,
    following_rows,
    from_ring_order,
)

Rows = NDArray[np.float32]


class ReplayBuffer:
    """The newest `capacity` transitions.

    Actions are what the learner sees: in [-1, 1], or numbered from 0. `num_envs` environments write
    side by side; each batch of rows says which (`env_ids`), the first ones by default.
    """

    def __init__(
        self,
        capacity: int,
        obs_dim: int,
        action_width: int,
        *,
        discrete: bool = False,
        num_envs: int = 1,
        n_step: int = 1,
        gamma: float = 0.99,
        layout: RowLayout | None = None,
    ) -> None:
        if capacity < num_envs:
            raise ValueError(f"capacity {capacity} is less than one row for each of {num_envs}")
        self.capacity = capacity
        self.layout = layout or RowLayout(obs_dim, action_width, discrete)
        self.n_step, self.gamma = n_step, gamma
        # the system hands out memory when it is first written to
        self._rows = torch.empty(capacity, self.layout.width)
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

    def add_batch(
        self,
        obs: ArrayLike,
        actions: ArrayLike,
        rewards: ArrayLike,
        next_obs: ArrayLike,
        terminations: ArrayLike,
        truncations: ArrayLike,
        env_ids: NDArray[np.int64] | None = None,
    ) -> None:
        """Add one transition of each of some environments, in one copy."""
        rows = self._pack(obs, actions, rewards, next_obs, terminations, truncations)
        self.add_rows(rows, np.arange(len(rows)) if env_ids is None else env_ids)

    def _pack(
        self,
        obs: ArrayLike,
        actions: ArrayLike,
        rewards: ArrayLike,
        next_obs: ArrayLike,
        terminations: ArrayLike,
        truncations: ArrayLike,
    ) -> Rows:
        rows = self.new_rows(len(np.asarray(rewards)))
        layout = self.layout
        rows[:, layout.obs] = obs
        rows[:, layout.actions] = np.asarray(actions).reshape(len(rows), -1)
        rows[:, layout.next_obs] = next_obs
        rows[:, layout.reward] = rewards
        rows[:, layout.termination] = terminations
        rows[:, layout.truncation] = truncations
        return rows

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

    # -- reading ------------------------------------------------------------------------------

    def sample(
        self,
        batch_size: int,
        *,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        memory: BatchMemory | None = None,
    ) -> Batch:
        """Draw a batch uniformly with replacement; the generator is on the CPU, as the rows are.

        With `memory` the batch may lie there, and is then valid until the next one.
        """
        if memory is not None and self.n_step == 1 and on_cpu(device):
            return memory.draw(self.layout, batch_size, self._size, generator, self._write_rows)
        return self.gather(self.draw(batch_size, generator), device)

    def draw(self, count: int, generator: torch.Generator | None) -> Tensor:
        """Positions drawn uniformly with replacement."""
        return torch.randint(self._size, (count,), generator=generator)

    def rows_at(self, positions: Tensor) -> Tensor:
        """Gather single transitions as packed rows."""
        return self._rows.index_select(0, positions)

    def _write_rows(self, positions: NDArray[np.int64], out: NDArray[np.float32]) -> None:
        """Gather rows into existing memory."""
        # nothing is out of bounds; in mode "raise" numpy would copy through a buffer
        self._written[0].take(positions, 0, out, "clip")

    def gather(
        self,
        positions: Tensor,
        device: torch.device | str | None = None,
        weights: Tensor | None = None,
        indices: Tensor | None = None,
    ) -> Batch:
        """Gather the transitions at these positions, over `n_step` steps."""
        rows = self.rows_at(positions)
        discounts = None
        if self.n_step > 1:
            discounts = self._reach_ahead(rows, positions)
        if device is not None:
            rows = rows.to(device, non_blocking=True)
            discounts = None if discounts is None else discounts.to(device)
            weights = None if weights is None else weights.to(device)
        return Batch.from_rows(
            rows, self.layout, discounts=discounts, weights=weights, indices=indices
        )

    def _reach_ahead(self, rows: Tensor, positions: Tensor) -> Tensor:
        """Add up to `n_step` rewards in place; return the discounts of the bootstrapped values.

        A window ends early at an episode's end, and at the newest row: there it bootstraps from the
        last observation that it reached.
        """
        layout, last = self.layout, positions
        discounts = torch.full((len(positions),), self.gamma)
        for _ in range(self.n_step - 1):
            following = self._following.index_select(0, last)
            goes_on = following >= 0
            last = torch.where(goes_on, following, last)
            step = self._rows[:, layout.reward].index_select(0, last)
            rows[:, layout.reward] += torch.where(goes_on, discounts * step, 0.0)
            discounts = torch.where(goes_on, discounts * self.gamma, discounts)
        ends = self._rows.index_select(0, last)
        rows[:, layout.next_obs] = ends[:, layout.next_obs]
        rows[:, layout.termination] = ends[:, layout.termination]
        rows[:, layout.truncation] = ends[:, layout.truncation]
        return discounts

    def as_dataset(
        self,
        to_env: Callable[[NDArray[Any]], NDArray[Any]] | None = None,
        source: str = "replay buffer",
    ) -> TransitionDataset:
        """Copy the rows to a dataset: each environment's episodes in the order they were made.

        `to_env` gives actions their environment's units. An episode that is still running, or that
        was cut off, counts as truncated at its newest row.
        """
        if not self._size:
            raise DatasetError(f"{source} is empty")
        order = self._stored_positions()
        order = order[torch.sort(self._env_ids[order], stable=True).indices]
        rows, layout = self._rows[order], self.layout
        terminations = rows[:, layout.termination] > 0
        actions: Any = rows[:, layout.actions].numpy()
        if layout.discrete:
            actions = actions[:, 0].astype(np.int64)
        return TransitionDataset.from_dict(
            {
                "obs": rows[:, layout.obs],
                "actions": actions if to_env is None else to_env(actions),
                "rewards": rows[:, layout.reward],
                "next_obs": rows[:, layout.next_obs],
                "terminations": terminations,
                "truncations": (self._following[order] < 0) & ~terminations,
            },
            source,
        )

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
