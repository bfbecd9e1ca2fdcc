"""Mean and standard deviation of observations, in one pass and in double precision."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

STD_EPSILON = 1e-3  # added, not a lower bound: the convention of TD3+BC and CORL


def mean_and_std(pieces: Iterable[Tensor]) -> tuple[Tensor, Tensor]:
    """Over all rows of the pieces; population deviation plus `STD_EPSILON`, float32."""
    count = 0
    mean = squares = torch.zeros(0)
    for piece in pieces:
        values = piece.double()
        piece_mean = values.mean(0)
        piece_squares = (values - piece_mean).square().sum(0)
        if count == 0:
            mean, squares = piece_mean, piece_squares
        else:  # Chan et al. 1979: combine without cancellation
            gap, total = piece_mean - mean, count + len(values)
            squares = squares + piece_squares + gap.square() * (count * len(values) / total)
            mean = mean + gap * (len(values) / total)
        count += len(values)
    return mean.float(), ((squares / count).sqrt() + STD_EPSILON).float()
