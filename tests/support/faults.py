"""Faults of algorithms that run without an error and must fail a learning gate.

Each is applied to an algorithm's class for the time of a test, and returns options to train with.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from rl_training.data import Batch

Fault = Callable[[Any, pytest.MonkeyPatch], dict[str, Any]]


def learns_nothing(algorithm: Any, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Leave the policy as it was made."""
    del algorithm, patch
    return {"learning_rate": 1e-12}


def ascends(name: str) -> Fault:
    """Give one of the losses the other sign."""

    def apply(algorithm: Any, patch: pytest.MonkeyPatch) -> dict[str, Any]:
        loss = algorithm.losses[name]

        @functools.wraps(loss)
        def negated(*args: Any, **shared: Any) -> Any:
            terms = loss(*args, **shared)
            return {**terms, f"{name}_loss": -terms[f"{name}_loss"]}

        patch.setitem(algorithm.losses, name, negated)
        return {}

    return apply


def keeps_its_targets(algorithm: Any, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Never move the target networks."""
    patch.setattr(algorithm, "track_targets", lambda self, tau: None)
    return {}


def sees(**change: Callable[[torch.Tensor], torch.Tensor]) -> Fault:
    """Change fields of every batch before the update sees it."""

    def apply(algorithm: Any, patch: pytest.MonkeyPatch) -> dict[str, Any]:
        update = algorithm.update_step

        def wrong(self: Any, batch: Batch) -> Any:
            fields = {name: function(getattr(batch, name)) for name, function in change.items()}
            return update(self, dataclasses.replace(batch, **fields))

        patch.setattr(algorithm, "update_step", wrong)
        return {}

    return apply


def other_rows(values: torch.Tensor) -> torch.Tensor:
    return values.roll(1, 0)
