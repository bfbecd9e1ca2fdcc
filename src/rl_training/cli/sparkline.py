"""Course of a score in a few characters."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

BLOCKS = "▁▂▃▄▅▆▇█"
_MIDDLE = BLOCKS[3]  # of a score that never changes
_NOT_FINITE = "×"


def sparkline(values: Sequence[float], width: int) -> str:
    """Draw values as blocks, the lowest of them as the lowest block; several share a block if there are many."""
    halves = [value / 2 for value in _means(values, width)]  # so that differences stay finite
    finite = [value for value in halves if math.isfinite(value)]
    if not finite:
        return _NOT_FINITE * len(halves)
    low, span = min(finite), max(finite) - min(finite)
    return "".join(_block(value, low, span) for value in halves)


def _block(value: float, low: float, span: float) -> str:
    if not math.isfinite(value):
        return _NOT_FINITE
    if span == 0:
        return _MIDDLE
    return BLOCKS[min(int((value - low) / span * len(BLOCKS)), len(BLOCKS) - 1)]


def _means(values: Sequence[float], width: int) -> list[float]:
    """Mean of the finite values in each of at most `width` equal parts; NaN where there is none."""
    if len(values) <= width:
        return list(values)
    edges = [number * len(values) // width for number in range(width + 1)]
    return [_mean(values[start:end]) for start, end in itertools.pairwise(edges)]


def _mean(values: Sequence[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return sum(value / len(finite) for value in finite) if finite else math.nan
