"""Two seeds in two processes on two cores, beside one process that has the machine for itself.

Updates of TD3+BC by wall-clock time, the only row that is: another load on the machine counts here.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.speed.problem import Problem, Settings
from benchmarks.speed.timing import Measured, NotMeasuredError, Spread

ROWS = 100_000


def measure(problem: Problem) -> Measured:
    """Microseconds per update of two processes and of one, and how much more two get done."""
    if (os.cpu_count() or 1) < 2:
        raise NotMeasuredError("needs two cores")
    workers = [_Worker(problem.settings) for _ in range(2)]
    try:
        for worker in workers:
            worker.ask(20)
        seconds = max(worker.answer() for worker in workers)
        updates = max(2, round(20 * 3 * problem.settings.seconds / seconds))
        together, alone = [], []
        for turn in range(problem.settings.rounds):
            both = _time(workers, updates)
            one = _time([workers[turn % 2]], updates)
            together.append(both / (2 * updates) * 1e6)
            alone.append(one / updates * 1e6)
    finally:
        for worker in workers:
            worker.close()
    gains = [one / both for one, both in zip(alone, together, strict=True)]
    return Measured(together, alone, Spread(gains))


def _time(workers: list[_Worker], updates: int) -> float:
    """Until the last of them is done."""
    for worker in workers:
        worker.ask(updates)
    return max(worker.answer() for worker in workers)


class _Worker:
    def __init__(self, settings: Settings) -> None:
        context: Any = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs, settings), daemon=True)
        self._process.start()

    def ask(self, updates: int) -> None:
        self._pipe.send(updates)

    def answer(self) -> float:
        return float(self._pipe.recv())

    def close(self) -> None:
        self._pipe.close()  # which ends its loop
        self._process.join(10)


def _work(pipe: Connection, settings: Settings) -> None:
    import dataclasses

    import torch

    from benchmarks.speed import ours

    torch.set_num_threads(1)
    problem = Problem(dataclasses.replace(settings, rows=min(ROWS, settings.rows)))
    learner = ours.offline(problem, "td3_bc", unit=2)
    while True:
        try:
            updates = pipe.recv()
        except EOFError:
            return
        start = time.perf_counter()
        learner.run(updates)
        pipe.send(time.perf_counter() - start)
