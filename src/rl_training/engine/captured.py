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

from rl_training.engine.capture import CaptureError, Recorder, same_bits, signature
from rl_training.engine.door import Function, Gradients, Inputs, Loss, Terms
from rl_training.engine.eager import copied, differentiate
from rl_training.engine.memory import Pool
from rl_training.engine.program import Program
from rl_training.engine.torch_private import storage_id

log = logging.getLogger("rl_training")

ROWS = 64  # rows of scalars that are allocated at once
CHECKS = 8  # times as many evaluations until a program is compared with its function again
MOST = 32  # programs, by loss and shape of inputs; the one that served longest ago makes room

Evaluation = Callable[[Inputs], Gradients]


class CapturedEngine:
    """Replays captured programs; a function that cannot be captured runs eagerly."""

    def __init__(self) -> None:
        self.eager: set[str] = set()  # keys of functions that cannot be captured, or are not pure
        self.forget()

    def forget(self) -> None:
        self._programs: OrderedDict[Hashable, Captured] = OrderedDict()
        self._latest: dict[str, Captured] = {}
        self._pool = Pool()

    def __reduce__(self) -> Any:
        return type(self), (), {"eager": self.eager}  # a copy serves other networks

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
        if captured is not None and captured.serves(inputs):
            return captured.replay(inputs)
        return self._evaluate(
            key, lambda values: differentiate(loss, parameters, values, with_norm), inputs
        )

    def values(self, key: str, function: Function, inputs: Inputs) -> Terms:
        captured = self._latest.get(key)
        if captured is not None and captured.serves(inputs):
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
        if key in self.eager or not _capturable(inputs):
            return _eagerly(evaluation, inputs)
        program_key = (key, *((name, _layout(value)) for name, value in inputs.items()))
        captured = self._programs.get(program_key)
        if captured is None:
            return self._capture(key, program_key, evaluation, inputs)
        self._programs.move_to_end(program_key)
        if captured.left == 0:
            return self._check(key, captured, evaluation, inputs)
        self._latest[key] = captured
        return captured.replay(inputs)

    def _capture(
        self, key: str, program_key: Hashable, evaluation: Evaluation, inputs: Inputs
    ) -> Gradients:
        fixed = {name: _copy(value) for name, value in inputs.items()}
        with Recorder() as recorder:
            result = evaluation(fixed)
        try:
            layouts = {name: _layout(value) for name, value in inputs.items()}
            captured = Captured(recorder, fixed, layouts, result, self._pool)
            replayed = captured.replay(inputs)
            _compare(replayed, result)
        except Exception as error:  # of whatever kind: it runs eagerly
            log.debug("%s runs eagerly: %s", key, error)
            return self._give_up(key, result, fixed, inputs)
        self._programs[program_key] = captured
        if len(self._programs) > MOST:
            _, dropped = self._programs.popitem(last=False)
            self._latest = {k: c for k, c in self._latest.items() if c is not dropped}
        return replayed

    def _check(
        self, key: str, captured: Captured, evaluation: Evaluation, inputs: Inputs
    ) -> Gradients:
        """Record the function once more: a value frozen into its program would differ now."""
        for name, value in captured.inputs.items():
            value.copy_(inputs[name])
        with Recorder(with_out_forms=False) as recorder:
            result = evaluation(captured.inputs)
        if recorder.obstacle is None and signature(recorder.operations) == captured.signature:
            captured.left = captured.interval = captured.interval * CHECKS
            return captured.replay(inputs)
        level = logging.DEBUG if captured.interval == 1 else logging.WARNING
        text = (
            "%s runs eagerly from now on: within the last %d evaluations it became another function"
        )
        log.log(level, text, key, captured.interval)
        return self._give_up(key, result, captured.inputs, inputs)

    def _give_up(
        self, key: str, result: Gradients, fixed: dict[str, Tensor], inputs: Inputs
    ) -> Gradients:
        """Return the recorded evaluation, and run eagerly from now on: evaluating an impure function
        twice would draw random numbers twice, for example.
        """
        self.eager.add(key)
        for name, value in inputs.items():
            if not same_bits([value], [fixed[name]]):  # the function changed it
                value.copy_(fixed[name])
        return result._replace(terms=copied(result.terms))


def _capturable(inputs: Inputs) -> bool:
    return Recorder.available and all(value.is_cpu for value in inputs.values())


def _eagerly(evaluation: Evaluation, inputs: Inputs) -> Gradients:
    result = evaluation(inputs)
    return result._replace(terms=copied(result.terms))


def _compare(replayed: Gradients, recorded: Gradients) -> None:
    """Refuse a program that does not give what it was recorded from, up to rounding."""
    pairs = list(zip(replayed.gradients, recorded.gradients, strict=True))
    pairs += [(value, recorded.terms[name]) for name, value in replayed.terms.items()]
    for ours, plain in pairs:
        scale = float(plain.abs().max()) if plain.numel() else 0.0
        if not torch.allclose(ours, plain, rtol=0.0, atol=0.1 * scale + 1e-3, equal_nan=True):
            raise CaptureError("its program gives other results")


def _copy(value: Tensor) -> Tensor:
    """Copy into memory of its own, laid out alike."""
    if 0 in value.stride():  # several entries in one place
        return value.clone(memory_format=torch.contiguous_format)
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype).copy_(value)


class Captured:
    """A program with the fixed inputs that it reads, and its results by name."""

    def __init__(
        self,
        recorder: Recorder,
        inputs: dict[str, Tensor],
        layouts: dict[str, Any],
        result: Gradients,
        pool: Pool,
    ) -> None:
        self.inputs, self._layouts = inputs, layouts
        self.signature = signature(recorder.operations)
        # evaluations until it is compared with its function: 1, 8, 64, ...
        self.left = self.interval = 1
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
        self._read = [
            (name, value) for name, value in inputs.items()
            if storage_id(value) in self.program.reads
        ]  # fmt: skip

    def serves(self, inputs: Inputs) -> bool:
        """Tell if inputs are laid out as the recorded ones; other memory would round otherwise."""
        layouts = self._layouts
        return (
            self.left > 0
            and len(inputs) == len(layouts)
            and all(layouts.get(name) == _layout(value) for name, value in inputs.items())
        )

    def replay(self, inputs: Inputs) -> Gradients:
        """Copy new values to the addresses that the program reads from, and run it."""
        self.left -= 1
        for name, value in self._read:
            value.copy_(inputs[name])
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


def _layout(value: Tensor) -> tuple[Any, ...]:
    return value.shape, value.stride(), value.dtype


def _is_scalar(value: Tensor) -> bool:
    return value.ndim == 0 and value.dtype is torch.float32
