"""The default engine: captures each loss with its gradient once, and replays it from then on.

Capture is what CUDA graphs do, here for the CPU dispatcher: the calls of one evaluation are recorded,
rewritten into cheaper ones, and repeated on the same memory. Results come from the rewritten program
from the first update on, so that a run which is resumed rounds as one that was never interrupted.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch import Tensor

from rl_training.engine.capture import Operation, Recorder, same_recording
from rl_training.engine.door import Function, Gradients, Inputs, Loss, Terms
from rl_training.engine.eager import copied, differentiate
from rl_training.engine.memory import Pool
from rl_training.engine.program import Program
from rl_training.engine.torch_private import storage_id

log = logging.getLogger("rl_training")

ROWS = 64  # rows of scalars that are allocated at once
MOST = 32  # programs, by loss and shape of inputs; the one that served longest ago makes room

Evaluation = Callable[[Inputs], Gradients]


class CapturedEngine:
    """Replays captured programs; a function that cannot be captured runs eagerly."""

    def __init__(self) -> None:
        self.eager: set[str] = set()  # keys of functions that turned out not to be pure
        self.forget()

    def forget(self) -> None:
        self._programs: OrderedDict[Hashable, Captured | None] = OrderedDict()  # None: eager
        self._latest: dict[str, Captured] = {}
        self._pool = Pool()

    def __reduce__(self) -> Any:
        return type(self), ()  # a copy serves other networks

    def gradients(
        self,
        key: str,
        loss: Loss,
        parameters: Sequence[Tensor],
        inputs: Inputs,
        *,
        with_norm: bool = False,
    ) -> Gradients:
        captured = self._latest.get(key)
        if captured is not None and captured.fits(inputs):
            return captured.replay(inputs)
        return self._evaluate(
            key, lambda values: differentiate(loss, parameters, values, with_norm), inputs
        )

    def values(self, key: str, function: Function, inputs: Inputs) -> Terms:
        captured = self._latest.get(key)
        if captured is not None and captured.fits(inputs):
            return captured.replay(inputs).terms

        def evaluation(values: Inputs) -> Gradients:
            with torch.no_grad():
                return Gradients([], function(values))

        return self._evaluate(key, evaluation, inputs).terms

    @property
    def programs(self) -> list[Program]:
        """Programs that are replayed."""
        return [captured.program for captured in self._latest.values()]

    def _evaluate(self, key: str, evaluation: Evaluation, inputs: Inputs) -> Gradients:
        shapes = (key, *((n, x.shape, x.stride(), x.dtype) for n, x in inputs.items()))
        if key in self.eager or not _capturable(inputs):
            return _eagerly(evaluation, inputs)
        if shapes not in self._programs:
            self._programs[shapes] = self._capture(key, evaluation, inputs)
            if len(self._programs) > MOST:
                _, dropped = self._programs.popitem(last=False)
                self._latest = {k: c for k, c in self._latest.items() if c is not dropped}
        self._programs.move_to_end(shapes)
        captured = self._programs[shapes]
        if captured is None:
            return _eagerly(evaluation, inputs)
        if captured.recording and captured.served:
            return self._verify(key, captured, evaluation, inputs)
        if not captured.recording:
            self._latest[key] = captured
        captured.served = True
        return captured.replay(inputs)

    def _capture(self, key: str, evaluation: Evaluation, inputs: Inputs) -> Captured | None:
        fixed = {name: _copy(value) for name, value in inputs.items()}
        with Recorder() as recorder:
            result = evaluation(fixed)
        try:
            return Captured(recorder, fixed, result, self._pool)
        except Exception as error:  # of whatever kind: it runs eagerly
            log.debug("%s runs eagerly: %s", key, error)
            return None

    def _verify(
        self, key: str, captured: Captured, evaluation: Evaluation, inputs: Inputs
    ) -> Gradients:
        """Record the second evaluation, too: a value frozen into the first would differ now."""
        captured.fill(inputs)
        with Recorder(with_out_forms=False) as recorder:
            result = evaluation(captured.inputs)
        if recorder.obstacle is None and same_recording(captured.recording, recorder.operations):
            captured.recording = []
            return captured.replay(inputs)
        log.debug("%s runs eagerly: it is not the same function every time", key)
        self.eager.add(key)
        return result._replace(terms=copied(result.terms))


def _capturable(inputs: Inputs) -> bool:
    return Recorder.available and all(value.is_cpu for value in inputs.values())


def _eagerly(evaluation: Evaluation, inputs: Inputs) -> Gradients:
    result = evaluation(inputs)
    return result._replace(terms=copied(result.terms))


def _copy(value: Tensor) -> Tensor:
    """Copy into memory of its own, laid out alike."""
    if 0 in value.stride():  # several entries in one place
        return value.clone(memory_format=torch.contiguous_format)
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype).copy_(value)


class Captured:
    """A program with the fixed inputs that it reads, and its results by name."""

    def __init__(
        self, recorder: Recorder, inputs: dict[str, Tensor], result: Gradients, pool: Pool
    ) -> None:
        self.inputs = inputs
        self.recording: list[Operation] = recorder.operations  # until it has been verified
        self.served = False
        self._names = list(result.terms)
        self._scalars = [name for name, value in result.terms.items() if _is_scalar(value)]
        self._others = [name for name in self._names if name not in self._scalars]
        norm = [] if result.norm is None else [result.norm]
        self.program = Program(
            recorder,
            [*result.gradients, *norm, *(result.terms[name] for name in self._others)],
            [result.terms[name] for name in self._scalars],
            pool,
        )
        outputs, count = self.program.outputs, len(result.gradients)
        self._gradients = outputs[:count]
        self._norm = outputs[count] if norm else None
        self._other_values = outputs[count + len(norm) :]
        self._rows: list[tuple[Tensor, Sequence[Tensor]]] = []
        self._shapes = {name: value.shape for name, value in inputs.items()}
        self._read = [
            (name, value) for name, value in inputs.items()
            if storage_id(value) in self.program.reads
        ]  # fmt: skip

    def fits(self, inputs: Inputs) -> bool:
        shapes = self._shapes
        return len(inputs) == len(shapes) and all(
            name in shapes and shapes[name] == value.shape for name, value in inputs.items()
        )

    def fill(self, inputs: Inputs) -> None:
        """Copy new values to the addresses that the program reads from."""
        for name, value in self._read:
            value.copy_(inputs[name])

    def replay(self, inputs: Inputs) -> Gradients:
        self.fill(inputs)
        self.program.run()
        return Gradients(self._gradients, self._terms(), self._norm)

    def _terms(self) -> Terms:
        """Copy the results, as the next replay writes over them."""
        row, views = self._rows.pop() if self._rows else self._more_rows()
        row.copy_(self.program.numbers)
        terms = dict(zip(self._scalars, views, strict=True))
        if not self._others:
            return terms
        others = zip(self._others, self._other_values, strict=True)
        terms |= {name: value.clone() for name, value in others}
        return {name: terms[name] for name in self._names}

    def _more_rows(self) -> tuple[Tensor, Sequence[Tensor]]:
        """Allocate rows for many replays: most of the cost of a small tensor is making it."""
        width = len(self._scalars)
        with torch.no_grad():
            block = torch.empty(ROWS, width)
            rows, views = block.unbind(), block.view(-1).unbind()
        self._rows = [(row, views[n * width : (n + 1) * width]) for n, row in enumerate(rows)]
        return self._rows.pop()


def _is_scalar(value: Tensor) -> bool:
    return value.ndim == 0 and value.dtype is torch.float32
