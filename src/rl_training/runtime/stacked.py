"""Several seeds of one offline configuration, trained side by side as one stack.

Every seed has the run directory, the batches and the noise that it would have alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack

from rl_training.algorithms.stepping import Terms
from rl_training.config import ConfigError, RunError
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.runtime.assemble import new_runs
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.execution import Run, using_machine
from rl_training.runtime.experience import Offline, StackedOffline
from rl_training.runtime.saving import InterruptCallback
from rl_training.runtime.stackable import refuse_unstackable
from rl_training.runtime.stacking import SeedStack
from rl_training.runtime.train_config import TrainConfig
from rl_training.runtime.trainer import TrainResult

log = logging.getLogger("rl_training")


def train_stacked(
    config: TrainConfig,
    seeds: Sequence[int],
    *,
    callbacks: Callable[[TrainConfig], Iterable[Callback]] = lambda _: (),
    dataset: TransitionDataset | None = None,
) -> list[TrainResult]:
    """One result per seed; `callbacks` makes fresh ones for each run.

    A seed that comes to its end, or fails, leaves the others to go on without it.
    """
    _refuse(config, seeds)
    configs = [config.replace(seed=seed) for seed in seeds]
    runs = new_runs(configs, callbacks=callbacks, dataset=dataset)
    for run in runs:
        run.stacked_seeds = seeds
    refuse_unstackable(runs[0].algorithm, _offline(runs[0]).dataset)
    interrupt = InterruptCallback()
    with using_machine(config), ExitStack() as opened:
        seats = [_Seat(run, interrupt, opened.enter_context(ExitStack())) for run in runs]
        with interrupt.listening():
            _train(seats)
    failed = [f"seed {seat.run.config.seed}: {seat.error}" for seat in seats if seat.error]
    if failed:
        raise RunError("\n".join(failed))
    return [seat.session.result() for seat in seats]


def _refuse(config: TrainConfig, seeds: Sequence[int]) -> None:
    if len(seeds) < 2 or len(set(seeds)) != len(seeds):
        raise ConfigError(f"a stack needs two or more distinct seeds, got {list(seeds)}")
    if config.regime != "offline":
        raise ConfigError(
            f"seeds can be stacked offline, but this is {config.regime} training of {config.algo}"
        )
    if config.groups.controls.stepper == "compiled":
        raise ConfigError("stacked seeds have a stepper of their own: take stepper: compiled out")
    if config.groups.controls.eval_workers:
        raise ConfigError("stacked seeds are evaluated in their own process: set eval_workers: 0")


class _Seat:
    """A run's place in the stack."""

    def __init__(self, run: Run, interrupt: InterruptCallback, exits: ExitStack) -> None:
        self.run = run
        self.error: RunError | None = None
        self._exits = exits
        self.session = exits.enter_context(run.session(interrupt))
        self.trainer = self.session.trainer

    @property
    def goes_on(self) -> bool:
        return self.error is None and not self.run.state.should_stop

    def start(self) -> None:
        self.run.state.spans.start()
        self.trainer.callbacks.on_train_start(self.run.state)

    def after_update(self, terms: Terms) -> None:
        try:
            self.trainer.after_update(terms)
        except RunError as error:
            self._fail(error)

    def end(self) -> None:
        """Unless it has failed, with its final evaluation and its result."""
        if self.error is not None:
            return
        try:
            self.trainer.callbacks.on_train_end(self.run.state)
            self._exits.close()
        except RunError as error:
            self._fail(error)

    def _fail(self, error: RunError) -> None:
        try:
            self._exits.__exit__(type(error), error, error.__traceback__)
        except RunError as final:  # which says that it was saved
            error = final
        self.error = error
        log.warning("seed %d ends, the others go on: %s", self.run.config.seed, error)


def _train(seats: Sequence[_Seat]) -> None:
    for seat in seats:
        seat.start()
    going = [seat for seat in seats if seat.goes_on]
    while going:
        repeats = going[0].run.config.groups.controls.stepper == "replay"
        stack = SeedStack([seat.run.algorithm for seat in going], repeats=repeats)
        batches = StackedOffline([_offline(seat.run) for seat in going])
        try:
            while all(seat.goes_on for seat in going):
                _lap(going, "other")
                rows, returns = batches.draw()
                _lap(going, "sample")
                terms = stack.update(batches.layout, rows, returns)
                _lap(going, "update")
                for seat, own in zip(going, terms, strict=True):
                    seat.after_update(own)
        finally:
            stack.release()
        for seat in going:
            if not seat.goes_on:
                seat.end()
        going = [seat for seat in going if seat.goes_on]


def _lap(seats: Sequence[_Seat], span: str) -> None:
    """What the stack does takes the time of every seed."""
    for seat in seats:
        seat.run.state.spans.lap(span)


def _offline(run: Run) -> Offline:
    assert isinstance(run.experience, Offline)
    return run.experience
