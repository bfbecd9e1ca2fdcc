"""The default stepper: sees the operations of a loss and its gradient once, and then repeats them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol
from weakref import ref

import torch
from torch import Tensor

from rl_training.algorithms.base import Algorithm
from rl_training.algorithms.stepping import (
    Differentiated,
    EagerStepper,
    Noise,
    Terms,
    TermsFunction,
    differentiated,
)
from rl_training.data.transitions.batch import Batch, memory_of
from rl_training.data.transitions.fixed_batch import SteadyBatch
from rl_training.models.modes import NoGrad
from rl_training.models.pool import POOL, Free
from rl_training.runtime.program import Program
from rl_training.runtime.recording import Recorder, same_bits

log = logging.getLogger("rl_training")

ROWS = 64  # of numbers that are made room for at once
MOST = 16  # losses and forms of batches; whoever has more would not repeat much

What = str | TermsFunction  # a loss by its network, or a function that is evaluated beforehand
Evaluation = Callable[[Batch, Noise], Differentiated]


class Steady(Protocol):
    """A batch whose memory stays where it is; `fill` has it hold what another one does."""

    @property
    def batch(self) -> Batch: ...

    def fits(self, batch: Batch) -> bool: ...

    def fill(self, batch: Batch) -> None: ...


class ReplayStepper(EagerStepper):
    """Gives what the eager stepper gives, bit for bit, and is faster by what leads to the operations."""

    def __init__(self) -> None:
        self.recordings = Recordings(SteadyBatch)

    def __reduce__(self) -> Any:
        return type(self), ()  # a copy has other networks

    def differentiate(
        self, algorithm: Algorithm[Any], name: str, batch: Batch, noise: Noise
    ) -> Differentiated:
        def evaluation(batch: Batch, noise: Noise) -> Differentiated:
            return differentiated(algorithm, name, batch, noise)

        return self._repeat(algorithm, name, evaluation, batch, noise)

    def evaluate(
        self, algorithm: Algorithm[Any], function: TermsFunction, batch: Batch, noise: Noise
    ) -> Terms:
        def evaluation(batch: Batch, noise: Noise) -> Differentiated:
            terms = EagerStepper.evaluate(self, algorithm, function, batch, noise)
            return Differentiated([], terms)

        return self._repeat(algorithm, function, evaluation, batch, noise).terms

    def _repeat(
        self,
        algorithm: Algorithm[Any],
        what: What,
        evaluation: Evaluation,
        batch: Batch,
        noise: Noise,
    ) -> Differentiated:
        if not is_repeatable(algorithm):
            return evaluation(batch, noise).with_own_terms()
        replay = self.recordings.ready(algorithm, what, batch, noise)
        if replay is not None:
            return replay(batch, noise)
        return self.recordings.evaluate(algorithm, what, evaluation, batch, noise)


def is_repeatable(algorithm: Algorithm[Any]) -> bool:
    changes = algorithm.follows_progress and algorithm.online_progress is not None
    return algorithm.repeatable and not changes and algorithm.device.type == "cpu"


def parameters_of(algorithm: Algorithm[Any]) -> Iterable[Tensor]:
    return algorithm.parameters()


class Recordings:
    """What has been recorded of a learner's losses, by loss and by form of batch.

    The first evaluation of its kind is recorded, the second is repeated and compared with one as
    ever. Whatever cannot be repeated, or is not equal, stays eager. All of it is for one learner
    with one config, whose parameters stay where they are; for any other it begins anew.
    """

    def __init__(
        self,
        steady: Callable[[Batch], Steady],
        tensors_of: Callable[[Algorithm[Any]], Iterable[Tensor]] = parameters_of,
    ) -> None:
        """`tensors_of` gives the parameters that losses read."""
        self._steady, self._tensors_of = steady, tensors_of
        self._learner: Callable[[], Algorithm[Any] | None] = lambda: None
        self._forget()

    def _forget(self) -> None:
        self.replays: dict[object, Replay | None] = {}  # None: eager
        self._last: dict[What, Replay] = {}  # the one that served last
        self._batches: dict[object, Steady] = {}
        self._free: Free = {}  # memory that they share, one after the other

    def _begin(self, algorithm: Algorithm[Any]) -> None:
        self._forget()
        self._learner, self._config = ref(algorithm), algorithm.config
        self._tensors = list(self._tensors_of(algorithm))
        self._places = [tensor.data_ptr() for tensor in self._tensors]

    def _are_of(self, algorithm: Algorithm[Any]) -> bool:
        return (
            self._learner() is algorithm
            and self._config is algorithm.config
            and self._places == list(map(Tensor.data_ptr, self._tensors))
        )

    @property
    def programs(self) -> list[Program]:
        """What is repeated."""
        return [each.program for each in self.replays.values() if each is not None and each.proved]

    def ready(
        self, algorithm: Algorithm[Any], what: What, batch: Batch, noise: Noise
    ) -> Replay | None:
        """The one that served last, if it does again."""
        replay = self._last.get(what)
        if replay is not None and self._are_of(algorithm) and replay.serves(batch, noise):
            return replay
        return None

    def evaluate(
        self,
        algorithm: Algorithm[Any],
        what: What,
        evaluation: Evaluation,
        batch: Batch,
        noise: Noise,
    ) -> Differentiated:
        if not all(isinstance(value, Tensor) for value in noise.values()):
            return evaluation(batch, noise).with_own_terms()
        if not self._are_of(algorithm):
            self._begin(algorithm)
        key = (what, batch.form, *[(name, value.shape) for name, value in noise.items()])
        if key not in self.replays:
            if len(self.replays) == MOST:
                return evaluation(batch, noise).with_own_terms()
            return self._record(key, evaluation, batch, noise)
        replay = self.replays[key]
        if replay is None:
            return evaluation(batch, noise).with_own_terms()
        if not replay.proved:
            return self._prove(key, replay, evaluation, batch, noise)
        self._last[what] = replay
        return replay(batch, noise)

    def _record(
        self, key: object, evaluation: Evaluation, batch: Batch, noise: Noise
    ) -> Differentiated:
        steady = self._batches.get(batch.form) or self._steady(batch)
        drawn = {name: value.clone() for name, value in noise.items()}
        steady.fill(batch)
        own = {memory_of(tensor) for tensors in self._free.values() for tensor in tensors}
        with POOL.replaced_by(self._free), Recorder() as recorder:
            found = evaluation(steady.batch, drawn)
            POOL.give(*found.spent)  # nobody takes it before the next recording
        for name, value in drawn.items():
            if value._version:  # the loss has changed it
                noise[name].copy_(value)
        self._batches[batch.form] = steady
        self.replays[key] = None
        try:
            self.replays[key] = Replay(recorder, steady, drawn, found, own)
        except Exception as error:  # whatever it is, the evaluation itself is right
            log.debug("%s stays eager: %s", key, error)
        return found.with_own_terms()._replace(spent=())

    def _prove(
        self, key: object, replay: Replay, evaluation: Evaluation, batch: Batch, noise: Noise
    ) -> Differentiated:
        """Other data and other parameters than when it was recorded, so what was kept shows."""
        # of the same memory, as sums depend on how that is aligned
        replay.fill(batch, noise)
        expected = evaluation(replay.batch, replay.noise)
        try:
            found = replay(batch, noise)
            replay.proved = same_bits(found.tensors(), expected.tensors())
        except Exception as error:  # of a repetition, which nothing depends on yet
            log.debug("%s stays eager: %s", key, error)
        if not replay.proved:
            self.replays[key] = None
        return expected.with_own_terms()


class Replay:
    """A program with the batch and the noise that it reads."""

    def __init__(
        self, recorder: Recorder, steady: Steady, noise: Noise, found: Differentiated, own: set[int]
    ) -> None:
        self._steady, self.noise = steady, noise
        self._names = list(found.terms)
        self._numbers = [name for name, value in found.terms.items() if _is_number(value)]
        self._others = [name for name in self._names if name not in self._numbers]
        norm = () if found.norm is None else (found.norm,)
        self.program = Program(
            recorder,
            [*found.gradients, *norm, *(found.terms[name] for name in self._others)],
            [found.terms[name] for name in self._numbers],
            own,
        )
        count = len(found.gradients)
        self._gradients = self.program.outputs[:count]
        self._norm = None if found.norm is None else self.program.outputs[count]
        self._other_values = self.program.outputs[count + len(norm) :]
        self._rows: list[tuple[Tensor, Sequence[Tensor]]] = []
        self.proved = False

    @property
    def batch(self) -> Batch:
        return self._steady.batch

    def serves(self, batch: Batch, noise: Noise) -> bool:
        """Whether what was recorded is what is asked for."""
        if len(noise) != len(self.noise) or not self._steady.fits(batch):
            return False
        own = self.noise
        return all(name in own and own[name].shape == noise[name].shape for name in noise)

    def fill(self, batch: Batch, noise: Noise) -> None:
        self._steady.fill(batch)
        for name, value in noise.items():
            self.noise[name].copy_(value)

    def __call__(self, batch: Batch, noise: Noise) -> Differentiated:
        self.fill(batch, noise)
        self.program.run()
        return Differentiated(self._gradients, self._terms(), self._norm)

    def _terms(self) -> Terms:
        """Copies, as the next repetition writes over what is here."""
        row, views = self._rows.pop() if self._rows else self._more_rows()
        row.copy_(self.program.numbers)
        terms = dict(zip(self._numbers, views, strict=True))
        if not self._others:
            return terms
        others = zip(self._others, self._other_values, strict=True)
        terms |= {name: value.clone() for name, value in others}
        return {name: terms[name] for name in self._names}

    def _more_rows(self) -> tuple[Tensor, Sequence[Tensor]]:
        """Room for the numbers of many repetitions: single tensors cost most when made one by one."""
        width = len(self._numbers)
        with NoGrad():
            block = torch.empty(ROWS, width)
            rows, views = block.unbind(), block.view(-1).unbind()
        self._rows = [(row, views[n * width : (n + 1) * width]) for n, row in enumerate(rows)]
        return self._rows.pop()


def _is_number(value: Tensor) -> bool:
    return value.ndim == 0 and value.dtype is torch.float32
