"""Observation normalisation: statistics of the data, which a policy carries with its weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

STD_EPSILON = 1e-3  # added, not a lower bound: the convention of TD3+BC and CORL
SMALL_STD = 1e-2  # below it a tenth is added instead, which would else outweigh the deviation
ROUNDING = 1e-6  # of float32, relative to the mean: less than that is a constant


class ObservationNormalizer(nn.Module):
    """(obs - mean) / std, estimated once on the dataset and never again.

    Here, on arrays and in gathered rows it is the mean subtracted, then a product with 1 / std, all in
    float32: the same bits everywhere. Near its mean the difference is exact, so a column that is
    large beside its deviation loses nothing.
    """

    mean: Tensor  # (obs_dim,) float32
    std: Tensor  # (obs_dim,) float32, greater than 0

    def __init__(self, mean: Any, std: Any) -> None:
        super().__init__()
        self.register_buffer("mean", torch.as_tensor(mean).float())
        self.register_buffer("std", torch.as_tensor(std).float())

    def forward(self, obs: Tensor) -> Tensor:
        return (obs - self.mean) * (1 / self.std)

    def as_numpy(self) -> Callable[[NDArray[np.float32]], NDArray[np.float32]]:
        """Return the function on arrays."""
        mean, inverse_std = self.mean.cpu().numpy(), (1 / self.std).cpu().numpy()
        return lambda obs: (obs - mean) * inverse_std

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Tensor]) -> ObservationNormalizer:
        return cls(state["mean"], state["std"])


def mean_and_std(pieces: Iterable[Tensor]) -> tuple[Tensor, Tensor]:
    """Mean and population deviation + `STD_EPSILON` of all rows, in one pass, in float64.

    Columns in small units, such as 1e-5 ± 1e-6, get a deviation of their own size.
    """
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
    std = (squares / count).sqrt()
    is_small = (std < SMALL_STD) & (std > ROUNDING * mean.abs())
    return mean.float(), (std + torch.where(is_small, 0.1 * std, STD_EPSILON)).float()
