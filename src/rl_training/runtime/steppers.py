"""Steppers to choose from, and the one that compiles each loss with its gradient."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, Literal

import torch
from torch import Tensor, nn

from rl_training.algorithms.base import Algorithm
from rl_training.algorithms.stepping import (
    Differentiated,
    EagerStepper,
    Noise,
    Stepper,
    Terms,
    all_found,
)
from rl_training.data.batch import Batch
from rl_training.models.nodes import Tape
from rl_training.runtime.replay import ReplayStepper

log = logging.getLogger("rl_training")

Compiled = Callable[[Sequence[Tensor], Batch, Noise], tuple[list[Tensor], Terms]]


StepperKind = Literal["replay", "eager", "compiled"]


def build_stepper(kind: StepperKind) -> Stepper:
    kinds = {"replay": ReplayStepper, "eager": EagerStepper, "compiled": CompiledStepper}
    return kinds[kind]()


class CompiledStepper(ReplayStepper):
    """`torch.compile` of each loss with its gradient; the optimizer's step and targets as ever.

    A loss that cannot be compiled is replayed from its first use on, so that a run that is resumed
    takes the same way.
    """

    def __init__(self) -> None:
        super().__init__()
        self._compiled: dict[str, Compiled | None] = {}  # None: replayed
        self._has_said_so = False

    def differentiate(
        self, algorithm: Algorithm[Any], name: str, batch: Batch, noise: Noise
    ) -> Differentiated:
        found = self._compiled_differentiate(algorithm, name, batch, noise)
        if found is None:
            return super().differentiate(algorithm, name, batch, noise)
        gradients, terms = found
        return Differentiated(gradients, terms)

    def _compiled_differentiate(
        self, algorithm: Algorithm[Any], name: str, batch: Batch, noise: Noise
    ) -> tuple[list[Tensor], Terms] | None:
        """Gradients and terms by compiled code, or None if there is none."""
        if algorithm.follows_progress and algorithm.online_progress is not None:
            self._say(f"the {name}_loss of {algorithm.name} changes with every step online")
            return None
        if name not in self._compiled:
            _check(algorithm, name, batch, noise)
        differentiated = self._compiled.get(name)
        if differentiated is None and name in self._compiled:
            return None
        try:
            if differentiated is None:
                differentiated = self._compiled[name] = compiled(algorithm, name)
            with torch.no_grad():
                return differentiated(algorithm.parameters_of(name), batch, noise)
        except Exception as error:  # of whatever kind: no parameter has moved yet
            self._compiled[name] = None
            reason = str(error).strip().splitlines() or [type(error).__name__]
            self._say(f"{name}_loss cannot be compiled here: {reason[0]}")
            return None

    def _say(self, why: str) -> None:
        if not self._has_said_so:
            log.warning("stepper: compiled goes on as replay: %s", why)
        self._has_said_so = True


def _check(algorithm: Algorithm[Any], name: str, batch: Batch, noise: Noise) -> None:
    """What is wrong with a loss itself is said in its own words, not in those of the compiler."""
    with Tape(algorithm.parameters_of(name)) as tape:
        terms = algorithm.losses[name](algorithm, batch, noise, algorithm.config)
    with torch.no_grad():
        all_found(algorithm, name, tape.gradients(terms[f"{name}_loss"]))


def compiled(algorithm: Algorithm[Any], name: str) -> Compiled:
    """Gradients, in the order of the network's parameters, and terms; compiled at the first call."""
    loss = _Loss(algorithm, name)
    names = [f"algorithm.{name}.{key}" for key, _ in getattr(algorithm, name).named_parameters()]

    def evaluate(parameters: Sequence[Tensor], batch: Batch, noise: Noise) -> tuple[Tensor, Terms]:
        own = dict(zip(names, parameters, strict=True))
        terms: Terms = torch.func.functional_call(loss, own, (batch, noise))
        return terms[f"{name}_loss"], terms

    def differentiate(
        parameters: Sequence[Tensor], batch: Batch, noise: Noise
    ) -> tuple[list[Tensor], Terms]:
        return torch.func.grad(evaluate, has_aux=True)(parameters, batch, noise)

    return torch.compile(
        _with_own_code(differentiate),
        fullgraph=True,
        dynamic=False,
        # what is looked up before each call; functions and modules do not change in between
        options={"guard_filter_fn": lambda guards: [not guard.is_global for guard in guards]},
    )


class _Loss(nn.Module):
    """A loss as a module, so that its network's parameters can be replaced by arguments."""

    def __init__(self, algorithm: Algorithm[Any], name: str) -> None:
        super().__init__()
        self.algorithm, self.name = algorithm, name

    def forward(self, batch: Batch, noise: Noise) -> Terms:
        algorithm = self.algorithm
        return algorithm.losses[self.name](algorithm, batch, noise, algorithm.config)


def _with_own_code(function: Any) -> Any:
    """A copy with a code object of its own: PyTorch keeps what it compiled, and counts it, by these."""
    return FunctionType(
        function.__code__.replace(),
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
