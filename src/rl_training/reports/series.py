"""Metrics of a run as series over steps, in bounded memory however long the run or odd its rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rl_training.reports.statistics import Floats
from rl_training.runs.tables import RowTable

MAX_METRICS = 256  # names of one run; more are left out
MAX_POINTS = 500  # of one series; neighbours of longer ones are averaged
_MAX_NAME = 200  # characters
_BUFFER = 4096  # rows of a metric between two reductions


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
    """Takes the rows of a run, table by table, and gives a `Series` per metric; `metric` is never left out."""

    def __init__(self, metric: str) -> None:
        self._columns = {metric: _Column()}
        self.left_out = False  # there were more metrics than `MAX_METRICS`

    def add(self, table: RowTable) -> None:
        steps = table.column("step")
        for name, values in zip(table.names, table.values.T, strict=True):
            column = self._columns.get(name) or self._new_column(name)
            if column is not None:
                column.add(steps, values)

    def series(self) -> dict[str, Series]:
        series = {name: column.series() for name, column in self._columns.items()}
        return {name: values for name, values in series.items() if len(values.steps)}

    def _new_column(self, name: str) -> _Column | None:
        if "/" not in name or len(name) > _MAX_NAME:  # step, updates, epoch
            return None
        if len(self._columns) >= MAX_METRICS:
            self.left_out = True
            return None
        return self._columns.setdefault(name, _Column())


class _Column:
    """Rows that came last, and sums over blocks of the rows before them."""

    def __init__(self) -> None:
        self._rows: list[Floats] = []  # tables of steps and values
        self._waiting = 0  # rows in them
        self._limit = _BUFFER
        self._block = 1  # rows that a point stands for
        self._points = np.empty((3, 0))  # sums of steps and of values, and their number
        self._last_step, self._last, self._highest = -np.inf, np.nan, np.nan

    def add(self, steps: Floats, values: Floats) -> None:
        self._rows.append(np.stack([steps, values]))
        self._waiting += len(values)
        if self._waiting >= self._limit:
            self._reduce(2 * MAX_POINTS)

    def series(self) -> Series:
        self._reduce(MAX_POINTS, all_rows=True)
        steps, values = _sorted(_averages(self._points))
        return Series(steps, values, self._last, self._highest)

    def _reduce(self, most: int, *, all_rows: bool = False) -> None:
        """Turn the latest rows into at most `most` points; those that do not fill a block wait, unless `all_rows`."""
        rows = _sorted(np.concatenate([np.empty((2, 0)), *self._rows], axis=1))
        number = rows.shape[1]
        if number:
            if rows[0, -1] >= self._last_step:
                self._last_step, self._last = map(float, rows[:, -1])
            self._highest = float(np.fmax(self._highest, np.fmax.reduce(rows[1])))
        while self._points.shape[1] + number / self._block > most:
            self._points = _sums(self._points, 2)
            self._block *= 2
        ready = number if all_rows else number - number % self._block
        counted = np.concatenate([rows[:, :ready], np.ones((1, ready))])
        self._points = np.concatenate([self._points, _sums(counted, self._block)], axis=1)
        self._rows, self._waiting = [rows[:, ready:]], number - ready
        self._limit = max(_BUFFER, 2 * self._block)


def _sorted(rows: Floats) -> Floats:
    """Sort columns by their first entry, the step."""
    steps = rows[0]
    if (steps[1:] >= steps[:-1]).all():
        return rows
    return rows[:, np.argsort(steps, kind="stable")]


def _averages(points: Floats) -> Floats:
    with np.errstate(invalid="ignore"):  # of values that are not finite
        return np.asarray(points[:2] / points[2])


def _sums(rows: Floats, block: int) -> Floats:
    """Sum over blocks of columns; the last block may be shorter."""
    if block == 1 or not rows.size:
        return rows
    with np.errstate(invalid="ignore", over="ignore"):  # of values that are not finite
        return np.asarray(np.add.reduceat(rows, np.arange(0, rows.shape[1], block), axis=1))
