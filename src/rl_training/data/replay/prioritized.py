"""Prioritised experience replay: transitions drawn by their last TD error. Schaul et al. 2016."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_training.config import CheckpointError
from rl_training.data.replay_buffer import ReplayBuffer, Rows
from rl_training.data.transitions.batch import Batch
from rl_training.data.transitions.batch_memory import BatchMemory
from rl_training.data.transitions.saved_replay import from_ring_order


class SumTree:
    """Binary tree of sums; drawing and updating a batch takes one pass per level.

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

    def update(self, positions: NDArray[np.int64], values: NDArray[np.float64]) -> None:
        self.leaves[positions] = values
        for level in range(self.depth - 1, -1, -1):
            positions = positions // 2
            below = self.levels[level + 1]
            self.levels[level][positions] = below[2 * positions] + below[2 * positions + 1]

    def find(self, masses: NDArray[np.float64]) -> NDArray[np.int64]:
        """Find the leaves under which these cumulative masses fall."""
        positions = np.zeros(len(masses), np.int64)
        remaining = masses.copy()
        for below in self.levels[1:]:
            positions *= 2
            left = below[positions]
            goes_right = (remaining >= left) & (below[positions + 1] > 0)
            remaining -= np.where(goes_right, left, 0.0)
            positions += goes_right
        return positions


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

    def _write(self, target: slice, rows: Rows, env_ids: NDArray[np.int64], oldest: int) -> None:
        super()._write(target, rows, env_ids, oldest)
        # a new transition is drawn soon: nobody knows its error yet
        positions = np.arange(target.start, target.start + len(rows))
        self._tree.update(positions, np.full(len(rows), self._largest**self.exponent))

    def sample(
        self,
        batch_size: int,
        *,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        memory: BatchMemory | None = None,
    ) -> Batch:
        """Draw stratified: one row from each of `batch_size` equal shares of the total."""
        spread = torch.rand(batch_size, generator=generator, dtype=torch.float64).numpy()
        total = self._tree.total
        positions = self._tree.find((np.arange(batch_size) + spread) * (total / batch_size))
        chances = self._tree.leaves[positions] / total
        weights = (len(self) * chances) ** -self.correction
        weights /= weights.max()
        drawn = torch.from_numpy(positions)
        return self.gather(drawn, device, torch.from_numpy(weights).float(), drawn)

    def update_priorities(self, indices: Tensor, errors: Tensor) -> None:
        """Store the new errors of these rows; a row drawn twice takes the later one."""
        sizes = (
            errors.detach().abs().double().cpu().numpy() + 1e-6
        )  # so that every row can be drawn again
        self._largest = max(self._largest, float(sizes.max()))
        self._tree.update(indices.cpu().numpy(), sizes**self.exponent)

    def changing_state(self) -> dict[str, Tensor]:
        leaves = self._tree.leaves[self._stored_positions().numpy()]
        return {
            **super().changing_state(),
            "priorities": torch.from_numpy(leaves),
            "largest_priority": torch.tensor(self._largest, dtype=torch.float64),
        }

    def load_state_dict(self, tensors: dict[str, Tensor]) -> None:
        if "position" in tensors:
            tensors = from_ring_order(tensors, self.capacity)
        super().load_state_dict(tensors)
        priorities = tensors["priorities"]
        if priorities.shape != (len(self),) or not bool((priorities > 0).all()):
            raise CheckpointError("the priorities of the saved replay are not one for each row")
        self._largest = float(tensors["largest_priority"])
        self._tree = SumTree(self.capacity)
        self._tree.update(self._stored_positions().numpy(), priorities.double().numpy())
