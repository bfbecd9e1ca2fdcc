"""Repeated rows and episodes, found by hashing columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.int64]


def hash_rows(matrices: Sequence[npt.NDArray[np.float32]]) -> Hashes:
    """One number per row of the matrices side by side, by the bits of their values."""
    columns = [matrix[:, column] for matrix in matrices for column in range(matrix.shape[1])]
    factors = np.random.default_rng(0).integers(1 << 63, size=len(columns), dtype=np.uint64)
    total: Hashes = np.zeros(len(matrices[0]), np.uint64)
    for column, factor in zip(columns, factors, strict=True):
        bits = (column + np.float32(0)).view(np.uint32)  # + 0 makes -0.0 equal to 0.0
        total += (factor | np.uint64(1)) * bits
    # Round numbers leave the low bits empty; fold the high ones in.
    return (total ^ (total >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)


def repeated_rows(hashes: Hashes, matrices: Sequence[npt.NDArray[Any]]) -> Rows:
    """Rows that an earlier row equals in every value, in order."""
    order = np.argsort(hashes, kind="stable")
    same = np.flatnonzero(hashes[order[1:]] == hashes[order[:-1]])
    earlier, later = order[same], order[same + 1]
    equal = np.ones(len(same), np.bool_)
    for matrix in matrices:
        equal &= (matrix[earlier] == matrix[later]).all(axis=1)
    return np.sort(later[equal])


def repeated_episodes(hashes: Hashes, starts: Rows, lengths: Rows) -> Rows:
    """Numbers of the episodes (of two rows or more) that repeat an earlier one."""
    position = np.arange(len(hashes)) - np.repeat(starts, lengths)
    weight = (position.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) | np.uint64(1)
    digests = np.add.reduceat(hashes * weight, starts) ^ lengths.astype(np.uint64)
    order = np.argsort(digests, kind="stable")
    later = order[1:][digests[order[1:]] == digests[order[:-1]]]
    return np.sort(later[lengths[later] > 1])
