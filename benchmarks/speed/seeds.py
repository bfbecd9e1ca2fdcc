"""Two seeds in two processes on two cores, beside one process that has the machine for itself.

Updates of TD3+BC by wall-clock time, the only row that is: another load on the machine counts here. By
CPU time one sees what two free cores would give, which is less than two where they share caches.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from multiprocessing.connection import Connection
from statistics import median
from typing import Any, NamedTuple

from benchmarks.speed.problem import Problem, Settings
from benchmarks.speed.timing import Measured, NotMeasuredError, Spread

ROWS = 100_000


def measure(problem: Problem) -> Measured:
    """Microseconds per update of two processes and of one, and how much more two get done."""
    if (os.cpu_count() or 1) < 2:
        raise NotMeasuredError("needs two cores")
    workers = [_Worker(problem.settings) for _ in range(2)]
    try:
        updates = max(2, round(3 * problem.settings.seconds / _time(workers, 20).wall * 20))
        together, alone = [], []
        for turn in range(problem.settings.rounds):
            together.append(_time(workers, updates))
            alone.append(_time([workers[turn % 2]], updates))
    finally:
        for worker in workers:
            worker.close()
    pairs = list(zip(alone, together, strict=True))
    return Measured(
        [both.wall / (2 * updates) * 1e6 for both in together],
        [one.wall / updates * 1e6 for one in alone],
        Spread([2 * one.wall / both.wall for one, both in pairs]),
        {"cpu_gain": median(2 * one.cpu / both.cpu for one, both in pairs)},
    )


class Spent(NamedTuple):
    """Seconds of the slowest process."""

    wall: float
    cpu: float


def _time(workers: list[_Worker], updates: int) -> Spent:
    for worker in workers:
        worker.ask(updates)
    answers = [worker.answer() for worker in workers]
    return Spent(*map(max, zip(*answers, strict=True)))


class _Worker:
    def __init__(self, settings: Settings) -> None:
        context: Any = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs, settings), daemon=True)
        self._process.start()

    def ask(self, updates: int) -> None:
        self._pipe.send(updates)

    def answer(self) -> Spent:
        return Spent(*self._pipe.recv())

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
        wall, cpu = time.perf_counter(), time.process_time()
        learner.run(updates)
        pipe.send((time.perf_counter() - wall, time.process_time() - cpu))
