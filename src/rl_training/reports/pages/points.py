"""Arrays that can be drawn: finite values, and no more points than a line needs to keep its shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = Sequence[float] | NDArray[Any]

LARGEST = 1e30  # sizes of axes beyond it overflow


@dataclass(frozen=True)
class Line:
    """A line over `x`, with a band from `low` to `high` if both are given."""

    label: str
    x: Values
    y: Values
    low: Values | None = None
    high: Values | None = None


def number_or_nan(value: float | None) -> float:
    """Replace by NaN, which is not drawn, what no axis can show."""
    return value if value is not None and abs(value) < LARGEST else float("nan")


def finite(values: Values) -> NDArray[Any]:
    """Values that an axis can show."""
    array = np.asarray(values, dtype=float).ravel()
    return array[np.abs(array) < LARGEST]


def sizes(values: Values) -> NDArray[Any]:
    """Lengths of bars; what has no length is 0."""
    array = np.asarray(values, dtype=float)
    return np.where((array > 0) & (array < LARGEST), array, 0.0)


def finite_line(line: Line, budget: int, positive: bool = False) -> tuple[NDArray[Any], ...]:
    """Arrays x, y, low and high of at most `budget` points that an axis can show.

    Without a band low and high are NaN. With `positive` the axis is logarithmic.
    """
    x, y = np.asarray(line.x, dtype=float), np.asarray(line.y, dtype=float)
    empty = np.full(y.shape, np.nan)
    low, high = (
        empty if values is None else np.asarray(values, dtype=float)
        for values in (line.low, line.high)
    )
    drawable = (np.abs(x) < LARGEST) & (np.abs(y) < LARGEST)
    if positive:
        drawable &= y > 0
    (indices,) = drawable.nonzero()
    indices = indices[shape(y[indices], budget)]
    band = (np.clip(array[indices], -LARGEST, LARGEST) for array in (low, high))
    return x[indices], y[indices], *band


def shape(values: NDArray[Any], budget: int) -> NDArray[Any]:
    """Indices of at most `budget` points that keep every peak: least and largest of each stretch."""
    if values.size <= budget:
        return np.arange(values.size)
    size = -(-2 * values.size // (budget - 2))
    rows = np.pad(values, (0, -values.size % size), mode="edge").reshape(-1, size)
    first = np.arange(len(rows)) * size
    last = values.size - 1
    extremes = (first + rows.argmin(axis=1), first + rows.argmax(axis=1))
    return np.unique(np.concatenate([*extremes, [0, last]]).clip(max=last))
