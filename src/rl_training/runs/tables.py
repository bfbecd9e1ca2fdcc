"""Rows of `metrics.jsonl` as tables of numbers, many rows at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.runs.numbers import Floats, parse_numbers
from rl_training.runs.rows import decode_row, read_lines

_MAX_NAMES = 512  # of a row that is parsed together with others
_MAX_LAYOUTS = 64  # at a time
_MAX_WAITING = 1 << 20  # bytes of lines that are parsed together
_FEW = 8  # rows that are decoded faster one by one
_SCORE = ("eval/return_mean", "eval/return_std")
_EXACT = 2**53  # whole numbers below are exact as floats


@dataclass(frozen=True)
class RowTable:
    """Rows with the same names, in the order of the file.

    Attributes:
        names: one per column; `step` is among them.
        values: table of numbers.
        lines: line of each row in the file, from 0.
    """

    names: tuple[str, ...]
    values: Floats
    lines: NDArray[np.int64]

    def column(self, name: str) -> Floats:
        return self.values[:, self.names.index(name)]


def read_tables(path: Path) -> Iterator[RowTable]:
    """Read a `metrics.jsonl` as tables, which come in no particular order.

    Rows that differ in their numbers only, as training writes them, are parsed together. All others are decoded one by one.
    """
    layouts: dict[tuple[bytes, ...], _Layout] = {}
    others: list[tuple[int, bytes]] = []
    size = 0
    for number, line in enumerate(read_lines(path)):
        parts = line.split(b'"')
        names = tuple(parts[1::2])
        layout = layouts.get(names)
        if layout is None:
            if len(layouts) >= _MAX_LAYOUTS:
                yield from _tables(layouts, others)
                size = 0
            layout = layouts[names] = _Layout(names)
        if layout.names is None or parts[0] != b"{" or len(parts) % 2 == 0:
            others.append((number, line))
        else:
            layout.add(number, line, b"".join(parts[2::2]))
        size += len(line)
        if size > _MAX_WAITING:
            yield from _tables(layouts, others)
            size = 0
    yield from _tables(layouts, others)


class _Layout:
    """Lines with the same names that wait to be parsed together; `names` is None if they cannot be."""

    def __init__(self, names: tuple[bytes, ...]) -> None:
        self.names = _plain_names(names)
        self.lines: list[tuple[int, bytes]] = []
        self._values: list[bytes] = []

    def add(self, number: int, line: bytes, values: bytes) -> None:
        self.lines.append((number, line))
        self._values.append(values)

    def table(self) -> RowTable | None:
        """Parse the lines; None if they have to be decoded one by one."""
        if self.names is None or len(self.lines) < _FEW:
            return None
        parsed = parse_numbers(b"".join(self._values), len(self.names))
        if parsed is None:
            return None
        values, whole = parsed
        step = self.names.index("step")
        if not whole[:, step].all() or (np.abs(values[:, step]) >= _EXACT).any():
            return None
        return RowTable(self.names, values, np.array([number for number, _ in self.lines]))


def _plain_names(names: Sequence[bytes]) -> tuple[str, ...] | None:
    """Decode names; None if JSON may read them otherwise, or they are not those of rows that we write."""
    if len(names) > _MAX_NAMES or len({*names}) < len(names) or b"step" not in names:
        return None
    try:
        decoded = tuple(name.decode() for name in names)
    except UnicodeDecodeError:
        return None
    return decoded if "".join(decoded).isprintable() and "\\" not in "".join(decoded) else None


def _tables(
    layouts: dict[tuple[bytes, ...], _Layout], others: list[tuple[int, bytes]]
) -> Iterator[RowTable]:
    """Parse all lines that wait, and forget them."""
    for layout in layouts.values():
        table = layout.table()
        if table is None:
            others += layout.lines
        else:
            yield table
    layouts.clear()
    rows: dict[tuple[str, ...], tuple[list[int], list[list[float]]]] = {}
    for number, line in sorted(others):
        row = decode_row(line)
        if row is not None:
            numbers, values = rows.setdefault(tuple(row), ([], []))
            numbers.append(number)
            values.append(list(row.values()))
    others.clear()
    for names, (numbers, values) in rows.items():
        yield RowTable(names, np.array(values, dtype=float), np.array(numbers))


class Evaluations:
    """Number of evaluations, and step, mean and standard deviation of the latest and the best, from tables in any order.

    Of several at one step the later one counts, and of several equally good ones the earlier; NaN is below all others.
    """

    def __init__(self) -> None:
        self.count = 0
        self.latest: tuple[int, float, float] | None = None
        self.best: tuple[int, float, float] | None = None
        self._ranks: dict[str, tuple[float, ...]] = {"latest": (), "best": ()}

    def add(self, table: RowTable) -> None:
        if not {*_SCORE} <= {*table.names}:
            return
        steps, means = table.column("step"), table.column("eval/return_mean")
        self.count += len(steps)
        numbers = ~np.isnan(means)
        self._choose("latest", table, steps, table.lines)
        self._choose("best", table, numbers, np.where(numbers, means, 0), -table.lines)

    def _choose(self, name: str, table: RowTable, *keys: NDArray[Any]) -> None:
        """Take the row whose keys are the highest, the first of them before the second."""
        row = np.lexsort(keys[::-1])[-1]
        rank = tuple(key[row].item() for key in keys)
        if rank > self._ranks[name]:
            self._ranks[name] = rank
            step, mean, std = (table.column(each)[row].item() for each in ("step", *_SCORE))
            setattr(self, name, (int(step), mean, std))
