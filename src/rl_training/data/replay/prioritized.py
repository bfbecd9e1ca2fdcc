"""Replay that draws transitions by their last error. Schaul et al. 2016."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_training.data.replay_buffer import ReplayBuffer, Rows
from rl_training.data.transitions.batch import Batch
from rl_training.data.transitions.batch_memory import BatchMemory


class SumTree:
    """Sums over 2, 4, 8, ... neighbours; drawing and updating a batch takes one pass per level.

    Every sum is computed from its two parts and never adjusted by a difference, so that a tree
    built anew from its leaves equals the one that was updated, to the last bit.
    """

    def __init__(self, leaves: int) -> None:
        self.depth = max(1, (leaves - 1).bit_length())
        self.levels = [np.zeros(2**level) for level in range(self.depth + 1)]  # root first

    @property
    def leaves(self) -> NDArray[np.float64]:
        return self.levels[-1]

    @property
    def total(self) -> float:
        return float(self.levels[0][0])

    def update(self, where: NDArray[np.int64], values: NDArray[np.float64]) -> None:
        self.leaves[where] = values
        for level in range(self.depth - 1, -1, -1):
            where = where // 2
            below = self.levels[level + 1]
            self.levels[level][where] = below[2 * where] + below[2 * where + 1]

    def find(self, masses: NDArray[np.float64]) -> NDArray[np.int64]:
        """The leaves under which these cumulative masses fall."""
        where = np.zeros(len(masses), np.int64)
        remaining = masses.copy()
        for below in self.levels[1:]:
            where *= 2
            left = below[where]
            goes_right = (remaining >= left) & (below[where + 1] > 0)
            remaining -= np.where(goes_right, left, 0.0)
            where += goes_right
        return where


class PrioritizedReplayBuffer(ReplayBuffer):
    """P(i) ∝ p_i^exponent, p_i the last error; weights (N P(i))^-correction, the largest being 1.

    `correction` is set from outside as it rises over a run.
    """

    def __init__(
        self, *args: Any, exponent: float = 0.6, correction: float = 0.4, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self.exponent, self.correction = exponent, correction
        self._tree = SumTree(self.capacity)
        self._largest = 1.0

    def _write(self, place: slice, start: int, rows: Rows, env_ids: NDArray[np.int64]) -> None:
        super()._write(place, start, rows, env_ids)
        # a new transition is drawn soon: nobody knows its error yet
        where = np.arange(start, start + len(rows))
        self._tree.update(where, np.full(len(rows), self._largest**self.exponent))

    def sample(
        self,
        batch_size: int,
        *,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        memory: BatchMemory | None = None,
    ) -> Batch:
        """Stratified: one draw from each of `batch_size` equal shares of the total."""
        spread = torch.rand(batch_size, generator=generator, dtype=torch.float64).numpy()
        total = self._tree.total
        where = self._tree.find((np.arange(batch_size) + spread) * (total / batch_size))
        chances = self._tree.leaves[where] / total
        weights = (len(self) * chances) ** -self.correction
        weights /= weights.max()
        places = torch.from_numpy(where)
        return self.gather(places, device, torch.from_numpy(weights).float(), places)

    def update_priorities(self, indices: Tensor, errors: Tensor) -> None:
        """The errors that these rows have now; a row drawn twice takes the later one."""
        sizes = errors.detach().abs().double().cpu().numpy() + 1e-6  # nothing is lost for good
        self._largest = max(self._largest, float(sizes.max()))
        self._tree.update(indices.cpu().numpy(), sizes**self.exponent)

    def state_dict(self) -> dict[str, Tensor]:
        return {
            **super().state_dict(),
            "priorities": torch.from_numpy(self._tree.leaves[: len(self)].copy()),
            "largest_priority": torch.tensor(self._largest, dtype=torch.float64),
        }

    def load_state_dict(self, tensors: dict[str, Tensor]) -> None:
        super().load_state_dict(tensors)
        self._largest = float(tensors["largest_priority"])
        self._tree = SumTree(self.capacity)
        self._tree.update(np.arange(len(self)), tensors["priorities"].numpy())
