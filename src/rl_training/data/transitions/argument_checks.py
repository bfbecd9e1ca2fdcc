"""Checks of arguments of dataset views; an error names the argument and its value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rl_training.config import DatasetError
from rl_training.data.transitions.view import RewardTransform

Numbers = float | Sequence[float] | npt.NDArray[Any] | Tensor

_LARGEST = float(np.finfo(np.float32).max)


def per_column(values: Numbers, width: int, name: str) -> Tensor:
    """Expand a number or a sequence to one float64 entry per column."""
    try:
        tensor = torch.as_tensor(values, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise DatasetError(f"{name} must be a number or {width}, got {values!r}") from None
    if tensor.ndim == 0:
        tensor = tensor.expand(width)
    if tensor.shape != (width,):
        raise DatasetError(f"{name} must have {width} entries, got shape {tuple(tensor.shape)}")
    require_all(tensor.isfinite(), tensor, f"{name} must be finite")
    return tensor


def require_all(good: Tensor, values: Tensor, rule: str) -> None:
    """Refuse with the first bad column: `std must be greater than 0, got -1 in column 2`."""
    if not bool(good.all()):
        column = int((~good).nonzero()[0])
        raise DatasetError(f"{rule}, got {values[column]:g} in column {column}")


def ordered(low: Numbers, high: Numbers, width: int) -> tuple[Tensor, Tensor]:
    """Lower and upper bound per column."""
    bottom, top = per_column(low, width, "low"), per_column(high, width, "high")
    require_all(bottom <= top, bottom, "low must not be greater than high")
    return bottom, top


def require_float32(value: Any, name: str) -> None:
    """Refuse numbers that do not fit into float32, the type of rewards."""
    try:
        size = abs(value)
        fits = bool(size <= _LARGEST)  # false for NaN too
    except (TypeError, ValueError, RuntimeError):
        raise DatasetError(f"{name} must be a number, got {value!r}") from None
    if not fits:
        raise DatasetError(f"{name} must be finite and fit into float32, got {value}")


def checked_reward(
    scale: float, shift: float, clip_min: float | None, clip_max: float | None
) -> RewardTransform:
    """Make a transform of rewards; numbers that cannot be one are refused."""
    numbers = {"scale": scale, "shift": shift, "clip_min": clip_min, "clip_max": clip_max}
    for name, value in numbers.items():
        if value is not None:
            require_float32(value, name)
    if scale == 0:
        raise DatasetError("scale must not be 0: every reward would be the same")
    if clip_min is not None and clip_max is not None and clip_min >= clip_max:
        raise DatasetError(f"clip_min {clip_min} must be less than clip_max {clip_max}")
    return RewardTransform(scale, shift, clip_min, clip_max)


def require_fraction(fraction: float, *, one_allowed: bool) -> None:
    if not 0 < fraction < 1 and not (one_allowed and fraction == 1):
        raise DatasetError(f"fraction must be between 0 and 1, got {fraction}")
