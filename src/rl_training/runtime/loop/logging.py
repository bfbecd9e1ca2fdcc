"""Rows of metrics: averages of the losses since the last row, passed to sinks and callbacks."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from rl_training.config import RunError
from rl_training.runs.metrics import MetricsWriter
from rl_training.runtime.loop.callback import Callback, Interval
from rl_training.runtime.loop.divergence import DivergedError, non_finite
from rl_training.runtime.loop.saved_values import number, whole, whole_or_none

if TYPE_CHECKING:
    from rl_training.algorithms.base import Terms
    from rl_training.runtime.loop.state import TrainerState

FOLD = 128  # updates whose scalars stay tensors before they are added up


class MetricsLog:
    """Writes rows of metrics with the counters of the run, then tells the listeners: `on_log`."""

    def __init__(self, writer: MetricsWriter, listeners: Callback) -> None:
        self.writer, self.listeners = writer, listeners

    def write(self, state: TrainerState, metrics: Mapping[str, float]) -> None:
        self.write_quietly(state, metrics)
        self.listeners.on_log(state, metrics)

    def write_quietly(self, state: TrainerState, metrics: Mapping[str, float]) -> None:
        """Write a row that no listener is told of: its metrics come from one."""
        counters = {"step": state.global_step, "updates": state.update_count, "epoch": state.epoch}
        with state.spans("log"):
            self.writer.write({**counters, **metrics})


class _Update(NamedTuple):
    """Terms of one update that are not added up yet."""

    step: int
    number: int
    terms: Terms

    def values(self) -> dict[str, float]:
        return {name: value.item() for name, value in self.terms.items()}


class LoggingCallback(Callback):
    """Averages the losses since the last row and logs them when `log_interval` is crossed.

    Scalars stay tensors until they are added up, so the update loop never waits for one.
    """

    def __init__(
        self,
        log: MetricsLog,
        interval: int,
        experience_metrics: Callable[[], dict[str, float]] = dict,
    ) -> None:
        self.log = log
        self.experience_metrics = experience_metrics
        self.interval = Interval(interval)
        self._pending: list[_Update] = []
        self._state: TrainerState | None = None
        self._sums: dict[str, list[float]] = {}  # name: [sum, count]
        self._clock = (time.perf_counter(), 0, 0)
        self._row_step = 0

    def on_train_start(self, state: TrainerState) -> None:
        self.interval.start(state)
        self._state = state
        self._clock = (time.perf_counter(), state.update_count, state.global_step)

    def on_collect_end(self, state: TrainerState, env_steps: int) -> None:
        self._tick(state)

    def on_update_end(self, state: TrainerState, terms: Terms) -> None:
        self._pending.append(_Update(state.global_step, state.update_count, terms))
        if len(self._pending) >= FOLD:
            with state.spans("log"):
                self._fold()
        self._tick(state)

    def _tick(self, state: TrainerState) -> None:
        if self.interval.crossed(state):
            self._log(state)
            self._sums = {}

    def _log(self, state: TrainerState) -> None:
        with state.spans("log"):
            averages = self._averages(state)
        self.log.write(state, averages)
        self._row_step = state.global_step

    def on_train_end(self, state: TrainerState) -> None:
        """Log the rest of an interval, too; a longer resume cuts this row off again."""
        if state.global_step > self._row_step:
            self._log(state)

    def state_dict(self) -> dict[str, Any]:
        self._refuse_divergence()  # never save networks that have already blown up
        return {
            "sums": self._sums,
            "pending": [update.values() for update in self._pending],
            "row_step": self._row_step,
            "looked_at": self.interval.last,
        }

    def load_state_dict(self, values: dict[str, Any]) -> None:
        self._sums = {
            key: [number(total), whole(count)] for key, (total, count) in values["sums"].items()
        }
        self._row_step = whole(values["row_step"])
        self.interval.last = whole_or_none(values.get("looked_at"))
        self._pending = [
            _Update(0, 0, {key: torch.tensor(number(value)) for key, value in terms.items()})
            for terms in values["pending"]
        ]

    def _averages(self, state: TrainerState) -> dict[str, float]:
        self._fold()
        then, updates_then, steps_then = self._clock
        now = time.perf_counter()
        self._clock = (now, state.update_count, state.global_step)
        seconds = max(now - then, 1e-9)
        return {
            **{f"train/{name}": total / count for name, (total, count) in self._sums.items()},
            **self.experience_metrics(),
            "time/updates_per_second": (state.update_count - updates_then) / seconds,
            "time/steps_per_second": (state.global_step - steps_then) / seconds,
            **state.spans.row(),
        }

    def _fold(self) -> None:
        pending = [update.terms for update in self._pending]
        for name in dict.fromkeys(name for terms in pending for name in terms):
            values = torch.stack([terms[name] for terms in pending if name in terms]).double()
            if values.ndim > 1:
                shape = tuple(values.shape[1:])
                raise RunError(f"the term {name!r} must be one number, but has shape {shape}")
            total, count = self._sums.get(name, [0.0, 0])
            self._sums[name] = [total + values.sum().item(), count + len(values)]
        if non_finite({name: total for name, (total, _) in self._sums.items()}) is not None:
            self._refuse_divergence()
        self._pending = []

    def _refuse_divergence(self) -> None:
        for update in self._pending:
            bad = non_finite(update.values())
            if bad is not None and self._state is not None:
                raise DivergedError(self._state.algorithm, update.step, update.number, bad)
