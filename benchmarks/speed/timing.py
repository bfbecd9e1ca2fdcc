"""Timing for comparisons on a noisy machine: contestants take turns in one process.

Times are CPU time of the whole process, and only ratios inside one round mean anything.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median, quantiles


class NotMeasuredError(Exception):
    """A contestant cannot take part; the message says why."""


@dataclass(frozen=True)
class Contestant:
    """`run(n)` does the work n times, where n is a multiple of `unit`."""

    run: Callable[[int], object]
    unit: int = 1


@dataclass
class Timing:
    """Microseconds per piece of work, one entry per round."""

    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)

    @property
    def microseconds(self) -> float:
        return median(self.cpu)


@dataclass(frozen=True)
class Spread:
    """The median of one number per round, and its quartiles."""

    rounds: list[float]

    @property
    def median(self) -> float:
        return median(self.rounds)

    @property
    def quartiles(self) -> tuple[float, float]:
        if len(self.rounds) < 2:
            return self.rounds[0], self.rounds[0]
        low, _, high = quantiles(self.rounds, n=4, method="inclusive")
        return low, high


@dataclass(frozen=True)
class Measured:
    """One row: microseconds of both sides by round, and what is judged."""

    ours: list[float]
    theirs: list[float]
    ratio: Spread

    @classmethod
    def ratios_of(cls, ours: list[float], theirs: list[float]) -> Measured:
        return cls(ours, theirs, Spread([a / b for a, b in zip(ours, theirs, strict=True)]))


def interleave(
    contestants: Mapping[str, Contestant], *, rounds: int, seconds: float
) -> dict[str, Timing]:
    """Each contestant works for about `seconds` in each round, in an order that turns."""
    names = list(contestants)
    counts = {name: _calibrate(contestants[name], seconds) for name in names}
    timings = {name: Timing() for name in names}
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            cpu, wall = _time(contestants[name], counts[name])
            timings[name].cpu.append(cpu / counts[name] * 1e6)
            timings[name].wall.append(wall / counts[name] * 1e6)
    return timings


def _calibrate(contestant: Contestant, seconds: float) -> int:
    """How often to run it in a turn; what is run for that also warms it up."""
    contestant.run(contestant.unit)  # compiles, allocates
    count = contestant.unit
    while True:
        cpu, _ = _time(contestant, count)
        if cpu >= seconds / 4:
            break
        count *= 2
    pieces = round(seconds / cpu * count / contestant.unit)
    return max(1, pieces) * contestant.unit


def _time(contestant: Contestant, count: int) -> tuple[float, float]:
    cpu, wall = time.process_time(), time.perf_counter()
    contestant.run(count)
    return time.process_time() - cpu, time.perf_counter() - wall
