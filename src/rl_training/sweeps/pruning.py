"""Pruning: which trials of a search go on after an intermediate evaluation.

Pure functions. A decision at a rung, one of a few fixed steps, depends on the trial's own value there and on those
of trials of earlier rounds, which are all known when a round begins. Optuna's pruners compare with whoever has
reported by then, so a slow machine would decide otherwise than a fast one; they are not used.
"""

from __future__ import annotations

import math
import statistics
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rl_training.runs.search_record import Mode

Pruner = Literal["none", "median", "hyperband"]
MEDIAN_STARTUP = 5  # earlier trials that a median is taken of at least
MEDIAN_PARTS = 4  # of the budget; a trial may end after each but the last
FACTOR = 3  # hyperband keeps one of so many at each rung, which has so many times the budget of the one before
MOST_RUNGS = 3


@dataclass(frozen=True)
class Reached:
    """Intermediate values of a trial, by rung."""

    number: int
    values: Mapping[int, float]


def rungs_of(pruner: Pruner, budget: int, interval: int) -> tuple[int, ...]:
    """Return the steps at which trials may end: evaluations, strictly inside the budget."""
    if pruner == "none":
        return ()
    if pruner == "median":
        wanted = [budget * part / MEDIAN_PARTS for part in range(1, MEDIAN_PARTS)]
    else:
        wanted = [budget / FACTOR**power for power in range(MOST_RUNGS, 0, -1)]
    steps = {interval * max(1, math.ceil(step / interval)) for step in wanted}
    return tuple(sorted(step for step in steps if step < budget))


def goes_on(
    pruner: Pruner,
    rungs: Sequence[int],
    rung: int,
    trial: Reached,
    earlier: Sequence[Reached],
    mode: Mode,
) -> bool:
    """Decide if a trial goes on after a rung, by the values of trials of earlier rounds."""
    others = [other for other in earlier if rung in other.values]
    if pruner == "median":
        return _beats_median(trial.values[rung], [other.values[rung] for other in others], mode)
    bracket = bracket_of(trial.number, len(rungs))
    if rungs.index(rung) < bracket:
        return True
    rivals = [
        other.values[rung] for other in others if bracket_of(other.number, len(rungs)) == bracket
    ]
    return _is_promoted(trial.values[rung], rivals, mode)


def bracket_of(number: int, rungs: int) -> int:
    """Return how many rungs a trial skips; as many trials are in each bracket as Hyperband puts there."""
    sizes = [
        math.ceil((rungs + 1) * FACTOR ** (rungs - skipped) / (rungs - skipped + 1))
        for skipped in range(rungs + 1)
    ]
    place = zlib.crc32(f"trial {number}".encode()) % sum(sizes)
    for bracket, size in enumerate(sizes):
        if place < size:
            return bracket
        place -= size
    raise AssertionError("the place is below the sum of the sizes")


def _beats_median(value: float, others: Sequence[float], mode: Mode) -> bool:
    """Tell if a value is at least as good as the median of the others; a few others decide nothing."""
    if len(others) < MEDIAN_STARTUP:
        return True
    median = statistics.median(others)
    return value >= median if mode == "max" else value <= median


def _is_promoted(value: float, rivals: Sequence[float], mode: Mode) -> bool:
    """Tell if a value belongs to the best third of itself and its rivals."""
    places = max(1, (len(rivals) + 1) // FACTOR)
    better = sum(rival > value if mode == "max" else rival < value for rival in rivals)
    return better < places
