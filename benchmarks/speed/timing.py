"""Timing for comparisons on a noisy machine: contestants take turns in one process.

Times are CPU time of the whole process, and only ratios inside one round mean anything.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import NamedTuple

TURN = 0.1  # seconds of CPU time: short, as the load of a machine changes within a second


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
    """Each contestant works for about `seconds` in each round, in short turns whose order changes."""
    plans = {name: _calibrate(who, min(TURN, seconds)) for name, who in contestants.items()}
    turns = max(1, round(seconds / max(plan.seconds for plan in plans.values())))
    timings = {name: Timing() for name in contestants}
    order = deque(contestants)
    for _ in range(rounds):
        spent = dict.fromkeys(contestants, (0.0, 0.0))
        for _ in range(turns):
            for name in order:
                cpu, wall = _time(contestants[name], plans[name].count)
                spent[name] = (spent[name][0] + cpu, spent[name][1] + wall)
            order.rotate(-1)
        for name, (cpu, wall) in spent.items():
            timings[name].cpu.append(cpu / (turns * plans[name].count) * 1e6)
            timings[name].wall.append(wall / (turns * plans[name].count) * 1e6)
    return timings


class _Plan(NamedTuple):
    """A turn: how often to run, and how long that takes."""

    count: int
    seconds: float


def _calibrate(contestant: Contestant, seconds: float) -> _Plan:
    """A turn of this length, or of one unit; what is run to find out also warms up."""
    contestant.run(contestant.unit)  # compiles, allocates
    count = contestant.unit
    cpu, _ = _time(contestant, count)
    while cpu < seconds / 4:
        count *= 2
        cpu, _ = _time(contestant, count)
    units = max(1, round(seconds / cpu * count / contestant.unit))
    return _Plan(units * contestant.unit, cpu / count * units * contestant.unit)


def _time(contestant: Contestant, count: int) -> tuple[float, float]:
    cpu, wall = time.process_time(), time.perf_counter()
    contestant.run(count)
    return time.process_time() - cpu, time.perf_counter() - wall
