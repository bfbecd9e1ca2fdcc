"""Metrics of a run as series over steps, in bounded memory however long the run or odd its rows."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rl_training.reports.statistics import Floats

MAX_METRICS = 256  # names of one run; more are left out
MAX_POINTS = 500  # of one series; neighbours of longer ones are averaged
_MAX_NAME = 200  # characters
_BUFFER = 4096  # rows between two reductions, a power of two


@dataclass(frozen=True)
class Series:
    """One metric of one run over steps; neighbours are averaged until at most `MAX_POINTS` are left.

    `last` and `highest` are values that were logged, not averages.
    """

    steps: Floats
    values: Floats
    last: float
    highest: float


class SeriesCollector:
    """Takes the rows of a run one by one and gives a `Series` per metric; `metric` is never left out."""

    def __init__(self, metric: str) -> None:
        self._columns = {metric: _Column()}
        self.left_out = False  # there were more metrics than `MAX_METRICS`

    def add(self, row: Mapping[str, Any]) -> None:
        step, columns = row["step"], self._columns
        for name, value in row.items():
            column = columns.get(name)
            if column is None:
                if "/" not in name or len(name) > _MAX_NAME:  # step, updates, epoch
                    continue
                if len(columns) >= MAX_METRICS:
                    self.left_out = True
                    continue
                column = columns[name] = _Column()
            column.steps.append(step)
            column.values.append(value)
            if len(column.values) >= column.limit:
                column.reduce(2 * MAX_POINTS)

    def series(self) -> dict[str, Series]:
        series = {name: column.series() for name, column in self._columns.items()}
        return {name: values for name, values in series.items() if len(values.steps)}


class _Column:
    """Rows that came last, and averages over blocks of the rows before them."""

    def __init__(self) -> None:
        self.steps, self.values = array("d"), array("d")
        self.limit = _BUFFER
        self._block = 1  # rows that a point stands for
        self._points = np.empty((2, 0))  # steps and values
        self._last = self._highest = np.nan

    def reduce(self, most: int) -> None:
        """Turn the latest rows into points, and average neighbours until at most `most` are left."""
        rows = np.array([self.steps, self.values])
        self.steps, self.values = array("d"), array("d")
        if not rows.size:
            return
        self._last = float(rows[1, -1])
        self._highest = float(np.fmax(self._highest, np.fmax.reduce(rows[1])))
        with np.errstate(invalid="ignore", over="ignore"):  # of values that are not finite
            self._points = np.concatenate([self._points, _averaged(rows, self._block)], axis=1)
            while self._points.shape[1] > most:
                self._points = _averaged(self._points, 2)
                self._block *= 2
        self.limit = max(_BUFFER, self._block)

    def series(self) -> Series:
        self.reduce(MAX_POINTS)
        while self._points.shape[1] > MAX_POINTS:  # all rows were reduced before
            self._points = _averaged(self._points, 2)
        order = np.argsort(self._points[0], kind="stable")
        steps, values = self._points[:, order]
        return Series(steps, values, self._last, self._highest)


def _averaged(rows: Floats, block: int) -> Floats:
    """Average over blocks of columns; the last block may be shorter."""
    if block == 1:
        return rows
    starts = np.arange(0, rows.shape[1], block)
    sizes = np.diff(np.append(starts, rows.shape[1]))
    return np.asarray(np.add.reduceat(rows, starts, axis=1) / sizes)
