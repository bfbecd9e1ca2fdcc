"""Process of one trial: trains its run as `rl-training train` would, and writes the trial's status."""

from __future__ import annotations

import importlib.util
import logging
import os
import platform
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_training.algorithms.registry import list_algorithm_specs, load_plugin
from rl_training.config import CheckpointError, RLTrainingError, RunError, without_colours
from rl_training.data.dataset_loaders import sharing_memory
from rl_training.engine.torch_private import import_early
from rl_training.ope.fit_runs import FitInterruptedError
from rl_training.runs.lock import RunLockedError
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.commands import train_in
from rl_training.runtime.config.train_config import TrainConfig
from rl_training.runtime.loop.divergence import DivergedRunError
from rl_training.runtime.loop.progress import score_of
from rl_training.runtime.loop.stop_reasons import INTERRUPTED
from rl_training.stop_signals import RaisingHandler
from rl_training.sweeps.executor import Limits, Task
from rl_training.sweeps.judging import judge_run
from rl_training.sweeps.status import MAX_WARNINGS, State, TrialStatus, write_status

if TYPE_CHECKING:
    from rl_training.algorithms.base import Terms
    from rl_training.runtime.trainer import TrainerState, TrainResult

log = logging.getLogger("rl_training")
SECONDS = 1.0  # between two writes of a status
LOCK_SECONDS = 120.0  # to wait for a process of an earlier driver that is still saving this run


class StatusCallback(Callback):
    """Writes step, speed and score of the run to the status file, and pauses the run where the task says so."""

    def __init__(self, task: Task, total: int, watched: str) -> None:
        self.status = TrialStatus(
            state="starting",
            attempt=task.attempt,
            host=platform.node(),
            process=os.getpid(),
            total=total,
        )
        self.paused = False
        self._path, self._pause_at, self._watched = Path(task.status), task.pause_at, watched
        self._began = self._written = 0.0
        self._first = (0, 0)  # step and update with which this process began

    def write(self, state: State | None = None, **changes: Any) -> None:
        changes = {**changes, "updated": time.time(), **({} if state is None else {"state": state})}
        self.status = replace(self.status, **changes)
        self._written = time.perf_counter()
        write_status(self._path, self.status)

    def warn(self, text: str) -> None:
        if text not in self.status.warnings and len(self.status.warnings) < MAX_WARNINGS:
            self.write(warnings=(*self.status.warnings, text))

    def on_train_start(self, state: TrainerState) -> None:
        self._began = time.perf_counter()
        self._first = (state.global_step, state.update_count)
        self.write("running", step=state.global_step)

    def on_collect_end(self, state: TrainerState, env_steps: int) -> None:
        self._tick(state)

    def on_update_end(self, state: TrainerState, terms: Terms) -> None:
        self._tick(state)

    def on_eval_end(self, state: TrainerState, metrics: Mapping[str, float]) -> None:
        self._write_progress(state, score=score_of(metrics, self._watched))
        if (
            self._pause_at is not None
            and state.global_step >= self._pause_at
            and not state.should_stop
        ):
            self.paused = True
            state.interrupt()

    def on_train_end(self, state: TrainerState) -> None:
        self.status = replace(self.status, step=state.global_step)

    def _tick(self, state: TrainerState) -> None:
        if time.perf_counter() - self._written >= SECONDS:
            self._write_progress(state)

    def _write_progress(self, state: TrainerState, **changes: Any) -> None:
        seconds = max(time.perf_counter() - self._began, 1e-9)
        step, updates = self._first
        self.write(
            step=state.global_step,
            steps_per_second=(state.global_step - step) / seconds,
            updates_per_second=(state.update_count - updates) / seconds,
            **changes,
        )


class _Warnings(logging.Handler):
    """Puts warnings of the package into the status."""

    def __init__(self, status: StatusCallback) -> None:
        super().__init__(logging.WARNING)
        self._status = status

    def emit(self, record: logging.LogRecord) -> None:
        self._status.warn(record.getMessage())


def run_task(task: Task) -> int:
    """Carry out a task in this process; returns its exit code."""
    status = StatusCallback(task, 0, "")
    try:
        _accept_signals()
        _limit(task.limits)
        for plugin in task.plugins:
            load_plugin(plugin)
        config = TrainConfig(**task.config)
        status = StatusCallback(task, config.budget, config.groups.controls.best_metric()[0])
        status.write()
        _report_warnings(status, task.debug)
        with sharing_memory():
            result = _unlocked(lambda: train_in(Path(task.run_dir), config, callbacks=[status]))
        if task.judging is not None and result.stop_reason != INTERRUPTED:
            judge_run(Path(task.run_dir), task.judging)
    except FitInterruptedError:
        status.write("interrupted")
        return 0
    except Exception as error:
        status.write("failed", error=_reason(error, task), is_user_error=_would_fail_again(error))
        with suppress(OSError, ValueError):  # a simulator may have closed the log
            traceback.print_exc()
        return 1
    except KeyboardInterrupt:  # before there was anything to save
        status.write("interrupted")
        return 0
    status.write(
        _end_of(result, status),
        stop_reason=result.stop_reason,
        warnings=result.warnings[:MAX_WARNINGS],
    )
    return 0


def import_everything() -> None:
    """Import what tasks need, so that processes forked from this one share it."""
    list_algorithm_specs()
    import_early()
    if importlib.util.find_spec("tensorboard") is not None:
        importlib.import_module("tensorboard.summary.writer.event_file_writer")


def _end_of(result: TrainResult, status: StatusCallback) -> State:
    if result.stop_reason != INTERRUPTED:
        return "ended"
    return "paused" if status.paused else "interrupted"


def _accept_signals() -> None:
    """Listen to the driver alone: a terminal sends Ctrl-C to every process of its group."""
    for name in ("SIGINT", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    signal.signal(signal.SIGTERM, RaisingHandler())
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])


def _limit(limits: Limits) -> None:
    if limits.nice and hasattr(os, "nice"):
        os.nice(limits.nice)
    if limits.memory is not None:
        import resource

        # what the process allocates for itself; mapped data, which all trials share, is not counted
        resource.setrlimit(resource.RLIMIT_DATA, (limits.memory, limits.memory))


def _report_warnings(status: StatusCallback, debug: bool) -> None:
    """Print notes and warnings, which go to the trial's log, and put warnings into the status."""

    def show(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
        if issubclass(category, UserWarning):
            text = without_colours(str(message))
            sys.stderr.write(f"warning: {text}\n")
            status.warn(text)

    logger = logging.getLogger("rl_training")
    logger.setLevel(logging.DEBUG if debug else logging.INFO)
    logger.handlers = [logging.StreamHandler(sys.stderr), _Warnings(status)]
    logger.propagate = False
    warnings.showwarning = show


def _unlocked(train: Callable[[], TrainResult]) -> TrainResult:
    """Train once the run is free: a process whose driver was killed may still be saving it."""
    deadline = 0.0
    while True:
        try:
            return train()
        except RunLockedError as error:
            if not deadline:
                log.info("%s: waiting for it", error)
                deadline = time.monotonic() + LOCK_SECONDS
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def _reason(error: Exception, task: Task) -> str:
    if isinstance(error, RLTrainingError):
        return str(error)
    text = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    out_of_memory = isinstance(error, MemoryError) or "can't allocate memory" in str(error)
    if out_of_memory and task.limits.memory is not None:
        return f"out of memory: --memory allows {task.limits.memory / 1e9:.2g} GB ({text})"
    return text


def _would_fail_again(error: Exception) -> bool:
    """Tell errors that another attempt meets again from those that may pass, as of a simulator."""
    if isinstance(error, DivergedRunError | RunLockedError):  # the latter after LOCK_SECONDS
        return True
    return isinstance(error, RLTrainingError) and not isinstance(
        error, RunError | OSError | CheckpointError
    )
