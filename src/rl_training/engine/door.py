"""The door of the room: what an engine does for whoever trains networks.

An engine knows tensors and functions of tensors, nothing else. Put `EagerEngine` in the place of any
other one and everything still trains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from torch import Tensor

Terms = dict[str, Tensor]
Inputs = Mapping[str, Tensor]
# the number to be minimised, and the terms to be logged or handed on
Loss = Callable[[Inputs], tuple[Tensor, Terms]]
Function = Callable[[Inputs], Terms]


class Gradients(NamedTuple):
    """Gradients in the order of the parameters; valid until the engine is asked again."""

    gradients: list[Tensor]
    terms: Terms  # detached, and the caller's to keep
    norm: Tensor | None = None  # L2 norm of all gradients, concatenated, where it was asked for


class UnusedParametersError(RuntimeError):
    """A loss does not depend on some of the parameters that it is to train."""

    def __init__(self, positions: Sequence[int]) -> None:
        super().__init__(f"the loss does not depend on parameters {list(positions)}")
        self.positions = list(positions)


class Engine(Protocol):
    """Differentiates losses. `key` names a loss: under one key it is always the same function.

    Functions are pure: their results depend on `inputs`, on tensors that stay at their address and on
    values that stay as they are until `forget` is called.
    """

    eager: set[str]  # keys that always run eagerly

    def gradients(
        self,
        key: str,
        loss: Loss,
        parameters: Sequence[Tensor],
        inputs: Inputs,
        *,
        with_norm: bool = False,
    ) -> Gradients:
        """Differentiate a loss in these parameters."""
        ...

    def values(self, key: str, function: Function, inputs: Inputs) -> Terms:
        """Evaluate a function without gradient."""
        ...

    def forget(self) -> None:
        """Drop what was prepared: networks or configuration were exchanged."""
        ...
