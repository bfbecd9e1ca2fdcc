"""Observation normalisation: statistics of the data, which a policy carries with its weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

STD_EPSILON = 1e-3  # added, not a lower bound: the convention of TD3+BC and CORL


@dataclass(frozen=True, eq=False)
class ObservationNormalizer:
    """(obs - mean) / std, estimated once on the dataset and never again."""

    mean: Tensor  # (obs_dim,) float32
    std: Tensor  # (obs_dim,) float32, greater than 0

    def __post_init__(self) -> None:
        for name in ("mean", "std"):
            object.__setattr__(self, name, torch.as_tensor(getattr(self, name)).float())

    def __call__(self, obs: Tensor) -> Tensor:
        return (obs - self.mean) / self.std

    def to(self, device: torch.device | str) -> ObservationNormalizer:
        return ObservationNormalizer(self.mean.to(device), self.std.to(device))

    def state_dict(self) -> dict[str, Tensor]:
        return {"mean": self.mean, "std": self.std}

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Tensor]) -> ObservationNormalizer:
        return cls(state["mean"], state["std"])


def mean_and_std(pieces: Iterable[Tensor]) -> tuple[Tensor, Tensor]:
    """Mean and population deviation + `STD_EPSILON` of all rows, in one pass, in float64."""
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
