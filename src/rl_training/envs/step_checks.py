"""Checks of what `reset` and `step` return; an `InterfaceError` says what to change."""

from __future__ import annotations

from typing import Any, SupportsFloat

import numpy as np

from rl_training.envs.errors import InterfaceError


def reward_number(reward: SupportsFloat) -> float:
    """Read the reward of a step as a number; an array, even of one entry, is refused by name."""
    try:
        return float(reward)
    except (TypeError, ValueError):
        text = f"step() returned the reward {reward!r}, which must be one number"
        raise InterfaceError(text) from None


def check_shape(obs: Any, expected: tuple[int, ...] | None, method: str) -> None:
    """Refuse an observation of another shape than its space; None, the shape of a Dict, fits all."""
    if expected is not None and np.shape(obs) != expected:
        raise InterfaceError(
            f"{method}() returned an observation of shape {np.shape(obs)}, but observation_space has "
            f"shape {expected}: change one of them"
        )
