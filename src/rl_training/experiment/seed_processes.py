"""Runs side by side in processes: one for each seed, at most `jobs` at a time."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_training.algorithms.registry import load_plugin
from rl_training.config import RLTrainingError, RunError
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.commands import train
from rl_training.runtime.config.train_config import TrainConfig
from rl_training.runtime.trainer import INTERRUPTED, TrainResult

if TYPE_CHECKING:
    from rl_training.algorithms.base import Terms
    from rl_training.runtime.trainer import TrainerState

SECONDS = 0.2  # between two messages of one seed
# told by seed: step, total, updates_per_second, return (once it is known), state
Report = Callable[[int, Mapping[str, Any]], None]


class TellParent(Callback):
    """Sends steps, speed and scores to the parent process, a few times a second."""

    def __init__(self, send: Callable[[dict[str, Any]], None], total: int) -> None:
        self._send, self._total = send, total
        self._sent = self._started = time.perf_counter()
        self._first_update = 0
        self._score: float | None = None

    def on_train_start(self, state: TrainerState) -> None:
        self._started, self._first_update = time.perf_counter(), state.update_count
        self._tell(state)

    def on_collect_end(self, state: TrainerState, env_steps: int) -> None:
        self._tick(state)

    def on_update_end(self, state: TrainerState, terms: Terms) -> None:
        self._tick(state)

    def on_eval_end(self, state: TrainerState, metrics: Mapping[str, float]) -> None:
        self._score = metrics["eval/return_mean"]
        self._tell(state)

    def _tick(self, state: TrainerState) -> None:
        if time.perf_counter() - self._sent >= SECONDS:
            self._tell(state)

    def _tell(self, state: TrainerState) -> None:
        self._sent = time.perf_counter()
        updates = state.update_count - self._first_update
        self._send(
            {
                "state": "running",
                "step": state.global_step,
                "total": self._total,
                "updates_per_second": updates / max(self._sent - self._started, 1e-9),
                "return": self._score,
            }
        )


def _train_seed(values: dict[str, Any], plugins: Sequence[str], messages: Connection) -> None:
    """Train one configuration in this process; messages are JSON, the last one says how it ended."""

    def send(message: dict[str, Any]) -> None:
        try:
            messages.send_bytes(json.dumps(message).encode())
        except OSError:  # the parent is gone: this run comes to its end all the same
            return

    logging.getLogger("rl_training").setLevel(logging.WARNING)
    try:
        for plugin in plugins:
            load_plugin(plugin)
        config = TrainConfig(**values)
        result = train(config, callbacks=[TellParent(send, config.budget)])
    except (RLTrainingError, KeyboardInterrupt) as error:
        interrupted = isinstance(error, KeyboardInterrupt)
        send({"state": "failed", "error": INTERRUPTED if interrupted else str(error)})
        return
    send(
        {
            "state": "ended",
            "run_dir": str(result.run_dir),
            "checkpoint_path": str(result.checkpoint_path),
            "metrics": result.metrics,
            "stop_reason": result.stop_reason,
        }
    )


@dataclass
class SeedProcess:
    """One seed while its process runs, and how it ended."""

    seed: int
    process: BaseProcess
    messages: Connection
    result: TrainResult | None = None
    error: str | None = None

    def read(self) -> dict[str, Any] | None:
        """Take the next message; None once the process is at its end."""
        try:
            message: dict[str, Any] = json.loads(self.messages.recv_bytes())
        except (EOFError, OSError):
            self.process.join()
            if self.result is None and self.error is None:
                self.error = f"its process died (exit code {self.process.exitcode})"
            return None
        if message["state"] == "failed":
            self.error = message["error"]
        elif message["state"] == "ended":
            paths = (Path(message["run_dir"]), Path(message["checkpoint_path"]))
            self.result = TrainResult(*paths, message["metrics"], message["stop_reason"])
        return message


def train_in_processes(
    configs: Sequence[TrainConfig], *, jobs: int, plugins: Sequence[str], report: Report
) -> list[TrainResult]:
    """Train configurations that differ in their seed; returns their results in the order given.

    A seed that fails leaves the others alone; at the end a `RunError` names those that failed.
    """
    waiting = list(configs)
    started: list[SeedProcess] = []
    running: dict[Connection, SeedProcess] = {}
    with _forwarding_signals(running) as interrupted, _importable_main():
        while running or (waiting and not interrupted.is_set()):
            while waiting and len(running) < jobs and not interrupted.is_set():
                seed = _start(waiting.pop(0), plugins)
                started.append(seed)
                running[seed.messages] = seed
            for messages in wait(list(running), timeout=0.5):
                seed = running[messages]  # type: ignore[index]
                message = seed.read()
                if message is None:
                    del running[seed.messages]
                else:
                    report(seed.seed, message)
    failed = [
        f"seed {seed.seed}: {seed.error}"
        for seed in started
        if seed.error is not None and seed.error != INTERRUPTED
    ]
    if failed:
        raise RunError("\n".join(failed))
    return [seed.result for seed in started if seed.result is not None]


def _start(config: TrainConfig, plugins: Sequence[str]) -> SeedProcess:
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(
        target=_train_seed, args=(config.as_dict(), tuple(plugins), sender), daemon=False
    )
    process.start()
    sender.close()  # so that the end of the process is the end of its messages
    return SeedProcess(config.seed, process, receiver)


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
def _forwarding_signals(running: Mapping[Any, SeedProcess]) -> Iterator[threading.Event]:
    """Pass Ctrl-C and SIGTERM on to every seed, which then saves a checkpoint and ends.

    A second signal acts as it would without us.
    """
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def forward(number: int, frame: Any) -> None:
        interrupted.set()
        signal.signal(number, before[signal.Signals(number)] or signal.SIG_DFL)
        for seed in list(running.values()):
            if seed.process.pid is not None and seed.process.is_alive():
                os.kill(seed.process.pid, signal.SIGTERM)

    for number in before:
        signal.signal(number, forward)
    try:
        yield interrupted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)
