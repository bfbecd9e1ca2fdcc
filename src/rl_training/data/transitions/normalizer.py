"""The observation normalisation that a policy carries along with its weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


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
