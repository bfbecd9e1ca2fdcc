"""Seeds of one configuration side by side: a process for each, at most `jobs` at a time."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from rl_training.config import ConfigError, RunError
from rl_training.experiment.seed_training import train_seed
from rl_training.imports import starting_processes
from rl_training.runtime.config.train_config import TrainConfig
from rl_training.runtime.loop.interrupt import Interrupt
from rl_training.runtime.trainer import TrainResult
from rl_training.stop_signals import STOP_SIGNALS

log = logging.getLogger("rl_training")
# called with a seed and a message about it, whose `state` is one of
#   starting
#   created  run_dir
#   running  step, total, updates_per_second, return (None before the first evaluation),
#            evaluated (just now)
#   note     text
#   warning  text
#   ended    run_dir, checkpoint_path, metrics, stop_reason, warnings
#   failed   error, is_user_error
Report = Callable[[int, Mapping[str, Any]], None]


_OF_TERMINALS = tuple(number for number in STOP_SIGNALS if number != signal.SIGTERM)


class SeedsFailedError(RunError):
    """Some seeds failed; `results` are those of the others."""

    def __init__(self, errors: Mapping[int, str], results: Sequence[TrainResult]) -> None:
        super().__init__("\n".join(f"seed {seed}: {error}" for seed, error in errors.items()))
        self.results = list(results)


@dataclass
class SeedProcess:
    """One seed while its process runs, and how it ended."""

    seed: int
    process: BaseProcess
    messages: Connection
    result: TrainResult | None = None
    error: str | None = None
    is_user_error: bool = False

    def read(self) -> dict[str, Any] | None:
        """Take the next message; None once the process has ended."""
        try:
            message: dict[str, Any] = json.loads(self.messages.recv_bytes())
        except (EOFError, OSError):
            self.process.join()
            if self.result is None and self.error is None:
                self.error = f"its process died (exit code {self.process.exitcode})"
            return None
        if message["state"] == "failed":
            self.error, self.is_user_error = message["error"], message["is_user_error"]
        elif message["state"] == "ended":
            paths = (Path(message["run_dir"]), Path(message["checkpoint_path"]))
            self.result = TrainResult(
                *paths, message["metrics"], message["stop_reason"], tuple(message["warnings"])
            )
        return message

    @property
    def was_terminated(self) -> bool:
        """True if a signal ended it before there was anything to save."""
        return self.result is None and self.process.exitcode == -signal.SIGTERM


def train_in_processes(
    configs: Sequence[TrainConfig],
    *,
    jobs: int,
    plugins: Sequence[str],
    report: Report,
    auto_resume: bool = False,
) -> list[TrainResult]:
    """Train configurations that differ in their seed; returns their results in the same order.

    A seed that fails leaves the others alone; at the end a `SeedsFailedError` names those that
    failed. After Ctrl-C the results of the seeds that had begun are returned.
    """
    waiting = list(configs)
    started: list[SeedProcess] = []
    running: dict[Connection, SeedProcess] = {}
    with _forwarding_signals(running) as interrupt, _importable_main():
        while running or (waiting and not interrupt.interrupted):
            while waiting and len(running) < jobs and not interrupt.interrupted:
                seed = _start(waiting.pop(0), plugins, auto_resume)
                started.append(seed)
                running[seed.messages] = seed
                if interrupt.interrupted:  # the signal came before this seed was in `running`
                    _terminate({seed.messages: seed})
                report(seed.seed, {"state": "starting"})
            for messages in wait(list(running), timeout=0.5):
                seed = running[messages]  # type: ignore[index]
                message = seed.read()
                if message is None:
                    del running[seed.messages]
                else:
                    report(seed.seed, message)
    results = [seed.result for seed in started if seed.result is not None]
    failed = [
        seed
        for seed in started
        if seed.error is not None and not (interrupt.interrupted and seed.was_terminated)
    ]
    if not failed:
        return results
    errors = {seed.seed: str(seed.error) for seed in failed}
    if len(failed) == len(configs) and all(seed.is_user_error for seed in failed):
        raise ConfigError("\n".join(dict.fromkeys(errors.values())))  # once, not once per seed
    raise SeedsFailedError(errors, results)


def _start(config: TrainConfig, plugins: Sequence[str], auto_resume: bool) -> SeedProcess:
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(
        target=train_seed,
        args=(
            config.as_dict(),
            tuple(plugins),
            sender,
            auto_resume,
            log.isEnabledFor(logging.DEBUG),
        ),
        daemon=False,
    )
    with _ignoring(_OF_TERMINALS), starting_processes():
        process.start()
    sender.close()  # so that the end of the process is the end of its messages
    return SeedProcess(config.seed, process, receiver)


@contextmanager
def _ignoring(numbers: Sequence[signal.Signals]) -> Iterator[None]:
    """Start processes that ignore what a terminal sends to all of them: the parent sends SIGTERM.

    Otherwise an interpreter that is starting would answer with a traceback, and one that trains would
    take the two for a second signal, which ends it at once.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


@contextmanager
def _importable_main() -> Iterator[None]:
    """Keep spawned processes from running the parent's main script a second time."""
    main = sys.modules["__main__"]
    names = {name: getattr(main, name, None) for name in ("__file__", "__spec__")}
    for name in names:
        setattr(main, name, None)
    if hasattr(main, "__file__"):
        del main.__file__
    try:
        yield
    finally:
        for name, value in names.items():
            if name != "__file__" or value is not None:
                setattr(main, name, value)


@contextmanager
def _forwarding_signals(running: Mapping[Any, SeedProcess]) -> Iterator[Interrupt]:
    """Pass Ctrl-C, SIGTERM and SIGHUP on to every seed, which then saves a checkpoint and ends.

    A second signal acts as it would without us, and ends the seeds at once.
    """
    interrupt = Interrupt(then=lambda: _terminate(running))
    with interrupt.listening():
        try:
            yield interrupt
        except BaseException:
            _terminate(running)
            raise


def _terminate(running: Mapping[Any, SeedProcess]) -> None:
    for seed in list(running.values()):
        if seed.process.pid is not None and seed.process.is_alive():
            os.kill(seed.process.pid, signal.SIGTERM)
