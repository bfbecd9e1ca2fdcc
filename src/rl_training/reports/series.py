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
_BUFFER = 4096  # rows of a metric between two reductions
_MAX_TABLES = 64
_TABLE_SIZE = 1 << 16  # numbers
_WIDE = 2 * MAX_METRICS  # names of a row


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
    """Takes the rows of a run one by one and gives a `Series` per metric; `metric` is never left out.

    Rows with the same names are gathered in one table, so that nothing is done per value.
    """

    def __init__(self, metric: str) -> None:
        self._columns = {metric: _Column()}
        self._tables: dict[tuple[str, ...], array[float]] = {}
        self.left_out = False  # there were more metrics than `MAX_METRICS`

    def add(self, row: Mapping[str, Any]) -> None:
        names = tuple(row)
        table = self._tables.get(names)
        if table is None:
            if len(self._tables) >= _MAX_TABLES or len(names) > _WIDE:
                self._empty_tables()
            table = self._tables[names] = array("d")
        table.fromlist(list(row.values()))
        if len(table) > _TABLE_SIZE:
            self._empty_tables()

    def series(self) -> dict[str, Series]:
        self._empty_tables()
        series = {name: column.series() for name, column in self._columns.items()}
        return {name: values for name, values in series.items() if len(values.steps)}

    def _empty_tables(self) -> None:
        for names, table in self._tables.items():
            steps = table[names.index("step") :: len(names)]
            for position, name in enumerate(names):
                column = self._columns.get(name) or self._new_column(name)
                if column is not None:
                    column.add(steps, table[position :: len(names)])
        self._tables.clear()

    def _new_column(self, name: str) -> _Column | None:
        if "/" not in name or len(name) > _MAX_NAME:  # step, updates, epoch
            return None
        if len(self._columns) >= MAX_METRICS:
            self.left_out = True
            return None
        return self._columns.setdefault(name, _Column())


class _Column:
    """Rows that came last, and averages over blocks of the rows before them."""

    def __init__(self) -> None:
        self._steps, self._values = array("d"), array("d")
        self._limit = _BUFFER
        self._block = 1  # rows that a point stands for
        self._points = np.empty((2, 0))  # steps and values
        self._last_step, self._last, self._highest = -np.inf, np.nan, np.nan

    def add(self, steps: array[float], values: array[float]) -> None:
        self._steps.extend(steps)
        self._values.extend(values)
        if len(self._values) >= self._limit:
            self._reduce(2 * MAX_POINTS)

    def series(self) -> Series:
        self._reduce(MAX_POINTS)
        steps, values = _sorted(self._points)
        return Series(steps, values, self._last, self._highest)

    def _reduce(self, most: int) -> None:
        """Turn the latest rows into points, and average neighbours until at most `most` are left."""
        if self._values:
            rows = _sorted(np.array([self._steps, self._values]))
            self._steps, self._values = array("d"), array("d")
            if rows[0, -1] >= self._last_step:
                self._last_step, self._last = map(float, rows[:, -1])
            self._highest = float(np.fmax(self._highest, np.fmax.reduce(rows[1])))
            self._points = np.concatenate([self._points, _averaged(rows, self._block)], axis=1)
        while self._points.shape[1] > most:
            self._points = _averaged(_sorted(self._points), 2)
            self._block *= 2
        self._limit = max(_BUFFER, self._block)


def _sorted(rows: Floats) -> Floats:
    """Sort columns by their first entry, the step."""
    return rows[:, np.argsort(rows[0], kind="stable")]


def _averaged(rows: Floats, block: int) -> Floats:
    """Average over blocks of columns; the last block may be shorter."""
    if block == 1:
        return rows
    starts = np.arange(0, rows.shape[1], block)
    sizes = np.diff(np.append(starts, rows.shape[1]))
    with np.errstate(invalid="ignore", over="ignore"):  # of values that are not finite
        return np.asarray(np.add.reduceat(rows, starts, axis=1) / sizes)
