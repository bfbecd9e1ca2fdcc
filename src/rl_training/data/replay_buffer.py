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
from rl_training.data.transitions.row_ring import RowRing, Rows

__all__ = ["ReplayBuffer", "Rows"]


class ReplayBuffer(RowRing):
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
        super().__init__(capacity, layout or RowLayout(obs_dim, action_width, discrete), num_envs)
        self.n_step, self.gamma = n_step, gamma

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
