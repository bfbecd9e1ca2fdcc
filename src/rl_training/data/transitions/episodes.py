"""Episodes of a dataset: their rows and returns, and choosing some of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rl_training.config import DatasetError
from rl_training.data.packing.flags import Ends

Chosen = npt.NDArray[np.bool_]  # one entry per episode


@dataclass(frozen=True, eq=False)
class Episodes:
    """Position, length and undiscounted return of every episode, in order."""

    starts: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    returns: npt.NDArray[np.float64]
    last_is_open: bool  # the data stops before the last episode does

    @classmethod
    def from_ends(
        cls, ends: Ends, rewards: Tensor, terminations: Tensor, truncations: Tensor
    ) -> Episodes:
        starts = np.concatenate([np.zeros(1, np.int64), ends[:-1] + 1])
        lengths = ends - starts + 1
        returns = np.add.reduceat(rewards.numpy().astype(np.float64), starts)
        ended = bool(terminations[-1] or truncations[-1])
        # Where nothing says how the last episode ended: it is whole if it is as long as every
        # truncated one before it. Neither episode ids nor breaks between rows mark the last row.
        limits = lengths[:-1][truncations[torch.from_numpy(ends[:-1])].numpy() > 0]
        whole = len(limits) > 0 and bool((limits == lengths[-1]).all())
        return cls(starts, lengths, returns, last_is_open=not ended and not whole)

    @classmethod
    def single_rows(cls, count: int) -> Episodes:
        """Every row by itself, for data whose boundaries are unknown."""
        return cls(np.arange(count), np.ones(count, np.int64), np.zeros(count), False)


def rows_of(episodes: Episodes, chosen: Chosen) -> Tensor:
    """Positions of all rows of the chosen episodes, in order."""
    return torch.from_numpy(np.flatnonzero(np.repeat(chosen, episodes.lengths)))


def choose_best(returns: npt.NDArray[np.float64], fraction: float) -> Chosen:
    """Choose the share with the highest returns; among equals the earlier ones."""
    count = max(1, math.ceil(fraction * len(returns) - 1e-9))
    chosen = np.zeros(len(returns), np.bool_)
    chosen[np.argsort(-returns, kind="stable")[:count]] = True
    return chosen


def choose_share(count: int, fraction: float, seed: int, unit: str) -> Chosen:
    """Choose a random share, never none and never all."""
    if count < 2:
        raise DatasetError(f"cannot split a dataset of one {unit}")
    size = min(max(1, round(fraction * count)), count - 1)
    chosen = np.zeros(count, np.bool_)
    chosen[np.random.default_rng(seed).permutation(count)[:size]] = True
    return chosen
