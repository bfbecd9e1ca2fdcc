"""Timing for comparisons on a noisy machine: contestants take turns in one process.

Times are CPU time, and only ratios inside one run mean anything.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median, quantiles
from typing import NamedTuple


class Timing(NamedTuple):
    """Microseconds per call, one entry per round."""

    rounds: list[float]

    @property
    def microseconds(self) -> float:
        return median(self.rounds)

    def ratio(self, other: Timing) -> tuple[float, float, float]:
        """Ratio of the medians, and the quartiles of the ratio in single rounds."""
        pairs = [a / b for a, b in zip(self.rounds, other.rounds, strict=True)]
        low, _, high = quantiles(pairs, n=4)
        return self.microseconds / other.microseconds, low, high


def interleave(
    contestants: Mapping[str, Callable[[], object]], *, rounds: int, calls: int
) -> dict[str, Timing]:
    """Each contestant is called `calls` times in each round, in an order that turns."""
    names = list(contestants)
    timings: dict[str, Timing] = {name: Timing([]) for name in names}
    for turn in range(-1, rounds):  # the first round warms up
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            call = contestants[name]
            start = time.process_time()
            for _ in range(calls):
                call()
            elapsed = time.process_time() - start
            if turn >= 0:
                timings[name].rounds.append(elapsed / calls * 1e6)
    return timings


def print_comparison(title: str, ours: str, theirs: str, timings: Mapping[str, Timing]) -> None:
    ratio, low, high = timings[ours].ratio(timings[theirs])
    print(
        f"{title:<28} {ours} {timings[ours].microseconds:9.1f} us   "
        f"{theirs} {timings[theirs].microseconds:9.1f} us   "
        f"ratio {ratio:.3f}  (quartiles {low:.3f} to {high:.3f})"
    )
