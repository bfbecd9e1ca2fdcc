"""Inputs brought to one scale by what has been seen so far."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rl_training.models.numpy_forward import NumpyFunction


class RunningNormalizer(nn.Module):
    """(x - mean) / std of all rows seen, clipped; saved with the networks.

    It begins as if it had seen one row of mean 0 and deviation 1, which soon counts for nothing.
    """

    count: Tensor
    mean: Tensor
    squares: Tensor

    def __init__(self, width: int, *, clip: float = 5.0, least_std: float = 1e-2) -> None:
        super().__init__()
        self.clip, self.least_std = clip, least_std
        self.register_buffer("count", torch.ones((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(width, dtype=torch.float64))
        self.register_buffer("squares", torch.ones(width, dtype=torch.float64))

    @torch.no_grad()
    def see(self, rows: Tensor) -> None:
        """Count these rows in, (batch, width)."""
        values = rows.double()
        new, mean = len(values), values.mean(0)
        total, gap = self.count + new, mean - self.mean
        # Chan et al. 1979: combine without cancellation
        self.squares += (values - mean).square().sum(0) + gap.square() * (self.count * new / total)
        self.mean += gap * (new / total)
        self.count.copy_(total)

    def forward(self, x: Tensor) -> Tensor:
        return ((x - self.mean.float()) / self._std().float()).clamp(-self.clip, self.clip)

    def _std(self) -> Tensor:
        return (self.squares / self.count).sqrt().clamp_min(self.least_std)

    def as_numpy(self) -> NumpyFunction:
        """Return the function on arrays, with the statistics of now."""
        mean = self.mean.float().cpu().numpy()
        std = self._std().float().cpu().numpy()

        def normalise(x: NDArray[np.float32]) -> NDArray[np.float32]:
            return np.minimum(np.maximum((x - mean) / std, -self.clip), self.clip)

        return normalise
