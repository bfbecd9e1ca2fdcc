"""What online learners remember: packed rows in a ring, in the units that they learn in.

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

from rl_training.config import CheckpointError, DatasetError
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.packing.layout import RowLayout
from rl_training.data.transitions.batch import Batch
from rl_training.data.transitions.batch_memory import BatchMemory, on_cpu

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
        # memory that is not written to yet is not taken from the machine
        self._rows = torch.empty(capacity, self.layout.width)
        self._following = torch.empty(capacity, dtype=torch.int64)  # next row of the episode, or -1
        self._env_ids = torch.empty(capacity, dtype=torch.int32)
        self._latest = np.full(num_envs, -1)  # newest row of each running episode
        self._position = self._size = 0
        self._see_as_arrays()

    def _see_as_arrays(self) -> None:
        self._written = (self._rows.numpy(), self._following.numpy(), self._env_ids.numpy())

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
        """One transition of each of some environments, in one copy."""
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
        """Packed rows, one for each of these environments."""
        count, start = len(rows), self._position
        if count > self.capacity:
            raise ValueError(f"{count} rows do not fit into a buffer of {self.capacity}")
        if start + count <= self.capacity:
            self._write(slice(start, start + count), start, rows, env_ids)
        else:
            first = self.capacity - start
            self._write(slice(start, self.capacity), start, rows[:first], env_ids[:first])
            self._write(slice(0, count - first), 0, rows[first:], env_ids[first:])
        self._position = (start + count) % self.capacity
        self._size = min(self._size + count, self.capacity)

    def _write(self, place: slice, start: int, rows: Rows, env_ids: NDArray[np.int64]) -> None:
        held, following, owners = self._written
        held[place] = rows
        owners[place] = env_ids
        following[place] = -1
        if len(rows) == 1:  # plain numbers cost a fifth of what arrays of one do
            self._link(start, int(env_ids[0]), rows[0])
            return
        where = np.arange(start, start + len(rows))
        before = self._latest[env_ids]
        goes_on = before >= 0
        following[before[goes_on]] = where[goes_on]
        ended = (rows[:, self.layout.termination] + rows[:, self.layout.truncation]) > 0
        self._latest[env_ids] = np.where(ended, -1, where)

    def _link(self, place: int, env_id: int, row: Rows) -> None:
        """This row follows its environment's last, and is now the last unless the episode ended."""
        before = self._latest.item(env_id)
        if before >= 0:
            self._written[1][before] = place
        ended = row.item(self.layout.termination) or row.item(self.layout.truncation)
        self._latest[env_id] = -1 if ended else place

    def begin_episode(self, env_id: int) -> None:
        """The next row of this environment does not follow on from its last."""
        self._latest[env_id] = -1

    def newest(self, count: int) -> Tensor:
        """Places of the rows written last, in the order of writing."""
        return torch.arange(self._position - count, self._position) % self.capacity

    def ended(self, places: Tensor) -> Tensor:
        """Whether the episodes of these rows ended with them."""
        rows = self._rows.index_select(0, places)
        return (rows[:, self.layout.termination] + rows[:, self.layout.truncation]) > 0

    def in_episode(self, env_id: int) -> bool:
        """Whether this environment's next row follows on from its last."""
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
        """Places drawn uniformly with replacement."""
        return torch.randint(self._size, (count,), generator=generator)

    def rows_at(self, where: Tensor) -> Tensor:
        """Single transitions as packed rows."""
        return self._rows.index_select(0, where)

    def _write_rows(self, where: NDArray[np.int64], out: NDArray[np.float32]) -> None:
        """`rows_at` into memory that is there."""
        # nothing is out of bounds to be clipped; without the word numpy takes a detour
        self._written[0].take(where, 0, out, "clip")

    def gather(
        self,
        where: Tensor,
        device: torch.device | str | None = None,
        weights: Tensor | None = None,
        indices: Tensor | None = None,
    ) -> Batch:
        """The transitions at these places, over `n_step` steps."""
        rows = self.rows_at(where)
        discounts = None
        if self.n_step > 1:
            discounts = self._reach_ahead(rows, where)
        if device is not None:
            rows = rows.to(device, non_blocking=True)
            discounts = None if discounts is None else discounts.to(device)
            weights = None if weights is None else weights.to(device)
        return Batch.from_rows(
            rows, self.layout, discounts=discounts, weights=weights, indices=indices
        )

    def _reach_ahead(self, rows: Tensor, where: Tensor) -> Tensor:
        """Add up to `n_step` rewards in place; returns what the bootstrapped value is scaled by.

        A window ends early at an episode's end, and at the newest row: there it bootstraps from the
        last observation that it reached.
        """
        layout, last = self.layout, where
        discounts = torch.full((len(where),), self.gamma)
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
        """The rows as a log: each environment's episodes in the order they were made.

        `to_env` gives actions their environment's units. An episode that is still running, or that
        was cut off, counts as truncated at its newest row.
        """
        if not self._size:
            raise DatasetError(f"{source} is empty")
        order = self._oldest_first()
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

    def _oldest_first(self) -> Tensor:
        start = self._position if self._size == self.capacity else 0
        return (torch.arange(self._size) + start) % self.capacity

    # -- checkpoints --------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Tensor]:
        """Only what is filled."""
        return {
            "rows": self._rows[: self._size],
            "following": self._following[: self._size],
            "env_ids": self._env_ids[: self._size],
            "latest": torch.from_numpy(self._latest.copy()),
            "position": torch.tensor(self._position),
        }

    def load_state_dict(self, tensors: dict[str, Tensor]) -> None:
        rows = tensors["rows"]
        if rows.shape[1:] != self._rows.shape[1:] or len(rows) > self.capacity:
            raise CheckpointError(
                f"the saved replay has shape {tuple(rows.shape)}, which does not fit a buffer of "
                f"{self.capacity} rows of {self.layout.width} numbers"
            )
        self._size, self._position = len(rows), int(tensors["position"])
        self._rows[: self._size] = rows
        self._following[: self._size] = tensors["following"]
        self._env_ids[: self._size] = tensors["env_ids"]
        self._latest = tensors["latest"].numpy().copy()
