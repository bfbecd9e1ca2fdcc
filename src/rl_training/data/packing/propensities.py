"""Probabilities with which the logging policy took its actions."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rl_training.config import DatasetError
from rl_training.data.packing.source import Array

# a softmax in float32 may give a sure choice slightly more than probability 1
_ROUNDING = 1e-5


def as_log_probs(
    values: Array, *, are_logs: bool, discrete: bool, label: str, first_row: int = 0
) -> npt.NDArray[np.float32]:
    """Read probabilities, densities or their logarithms as log-probabilities, one per row.

    Probabilities of discrete actions are in (0, 1], densities of continuous ones are positive; another value is an error
    that names its row.
    """
    flat = values.reshape(len(values)).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        logs = flat if are_logs else np.log(flat)
        largest = _ROUNDING if discrete else np.finfo(np.float32).max
        refused = ~((logs >= np.finfo(np.float32).min) & (logs <= largest))
    if refused.any():
        row = int(refused.argmax())
        what = "a log-probability" if are_logs else "a probability"
        limits = (
            ("finite and at most 0" if discrete else "finite")
            if are_logs
            else ("above 0 and at most 1" if discrete else "above 0 and finite")
        )
        raise DatasetError(
            f"{label} has {flat[row]:g} at row {first_row + row}; {what} of a logged "
            f"{'choice' if discrete else 'action'} must be {limits}. Correct it, or leave the field out."
        )
    return np.minimum(logs, 0.0 if discrete else np.inf).astype(np.float32)


def as_choice_log_probs(log_probs: Tensor | None, source: str) -> Tensor | None:
    """Check log-densities again as log-probabilities, once their actions are read as discrete."""
    if log_probs is None:
        return None
    label = f"{source}: 'behavior_log_probs'"
    return torch.from_numpy(
        as_log_probs(log_probs.numpy(), are_logs=True, discrete=True, label=label)
    )
