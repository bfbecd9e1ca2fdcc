"""When checkpoints are written, and which of them is the best."""

from __future__ import annotations

import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_training.runtime.callbacks import Callback, Interval
from rl_training.runtime.checkpoints.format import (
    STEP_PREFIX,
    drop_older_replays,
    point,
    step_directories,
    write_checkpoint,
)
from rl_training.runtime.trainer import INTERRUPTED

if TYPE_CHECKING:
    from torch import Tensor

    from rl_training.algorithms.base import Terms
    from rl_training.runtime.trainer import TrainerState


class CheckpointCallback(Callback):
    """Saves at every interval, at every new best evaluation and at the end; runs last in a tick."""

    def __init__(
        self,
        checkpoints: Path,
        contents: Callable[[], tuple[dict[str, Any], dict[str, Tensor]]],
        interval: int,
        keep: int | None,
    ) -> None:
        self.checkpoints = checkpoints
        self.contents = contents  # manifest and tensors, as things are
        self.interval = Interval(interval)
        self.keep = keep
        self.best: float | None = None
        self.best_step: int | None = None
        self._scored = False

    def on_train_start(self, state: TrainerState) -> None:
        self.interval.last = state.global_step
        with state.spans("checkpoint"):
            missing = state.should_stop or (self._scored and self._lacks_some(state))
            if missing and not self._directory(state.global_step).exists():
                self.save(state)  # stopped or scored before the first tick
            if self.best_step is not None and not self._directory(self.best_step).exists():
                self.best = self.best_step = None  # a copy without its run: the best starts anew
            self._point_best()
        self._scored = False

    def on_collect_end(self, state: TrainerState, env_steps: int) -> None:
        self._tick(state)

    def on_update_end(self, state: TrainerState, terms: Terms) -> None:
        self._tick(state)

    def on_eval_end(self, state: TrainerState, metrics: Mapping[str, float]) -> None:
        value = metrics["eval/return_mean"]
        if self.best is None or value > self.best:
            self.best, self.best_step = value, state.global_step
        self._scored = True

    def on_train_end(self, state: TrainerState) -> None:
        """The scores that came after the last save may have been the best."""
        with state.spans("checkpoint"):
            if state.unsaved:
                self.save(state)
            self._point_best()

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "best_step": self.best_step}

    def load_state_dict(self, values: dict[str, Any]) -> None:
        self.best, self.best_step = values["best"], values["best_step"]

    def save(self, state: TrainerState) -> None:
        """Write a checkpoint of this moment."""
        write_checkpoint(self._directory(state.global_step), *self.contents())
        state.unsaved = False
        point(self.checkpoints, "last", state.global_step)
        drop_older_replays(self.checkpoints)

    def _tick(self, state: TrainerState) -> None:
        due = self.interval.crossed(state) or state.should_stop
        if due or self._scored:
            with state.spans("checkpoint"):
                if due or self._lacks_some(state):
                    self.save(state)
                self._point_best()
                self._prune(state)
            self._scored = False

    def _wanted(self, state: TrainerState) -> set[int]:
        """Steps that must have a checkpoint."""
        return {step for step in (self.best_step, state.good_step) if step is not None}

    def _lacks_some(self, state: TrainerState) -> bool:
        return any(not self._directory(step).exists() for step in self._wanted(state))

    def _point_best(self) -> None:
        if self.best_step is not None:
            point(self.checkpoints, "best", self.best_step)

    def _prune(self, state: TrainerState) -> None:
        if self.keep is None:
            return
        kept = {self._directory(step) for step in self._wanted(state)}
        for path in step_directories(self.checkpoints)[: -self.keep]:
            if path not in kept:
                shutil.rmtree(path)

    def _directory(self, step: int) -> Path:
        return self.checkpoints / f"{STEP_PREFIX}{step}"


class InterruptCallback(Callback):
    """Turns Ctrl-C and SIGTERM into a stop at the end of the tick, so that it is saved whole."""

    def __init__(self) -> None:
        self.interrupted = False

    def on_collect_end(self, state: TrainerState, env_steps: int) -> None:
        self._tick(state)

    def on_update_end(self, state: TrainerState, terms: Terms) -> None:
        self._tick(state)

    def _tick(self, state: TrainerState) -> None:
        if self.interrupted:
            state.request_stop(INTERRUPTED)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """A second signal acts as it would without us."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

        def note(number: int, frame: Any) -> None:
            self.interrupted = True
            signal.signal(number, before[signal.Signals(number)] or signal.SIG_DFL)

        for number in before:
            signal.signal(number, note)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler or signal.SIG_DFL)
