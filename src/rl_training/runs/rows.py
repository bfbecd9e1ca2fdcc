"""Rows of `metrics.jsonl`, one by one.

A row that is being written, or was cut off, is left out. So is a metric whose value is not a number, or whose name cannot
be printed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rl_training.config import CheckpointError
from rl_training.files import open_regular
from rl_training.runs.layout import MAX_METRICS_BYTES

_MAX_LINE = 1 << 20  # bytes of one row
_NUMBERS = frozenset((int, float))  # not bool
_ROWS = json.JSONDecoder(parse_int=lambda digits: int(digits) if len(digits) <= 308 else None)


def iterate_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Read a `metrics.jsonl` row by row."""
    for line in read_lines(path):
        row = decode_row(line)
        if row is not None:
            yield row


def read_lines(path: Path) -> Iterator[bytes]:
    """Read a file line by line; none if there is no such file."""
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > MAX_METRICS_BYTES:
                raise CheckpointError(
                    f"{path} has {size:,} bytes; metrics have at most {MAX_METRICS_BYTES:,}"
                )
            while line := file.readline(_MAX_LINE):
                yield line
    except FileNotFoundError:
        return
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from None


def decode_row(line: bytes) -> dict[str, Any] | None:
    """Decode one row; None if it is none, or has no step."""
    try:
        row = _ROWS.decode(line.decode())
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict):
        return None
    if not (set(map(type, row.values())) <= _NUMBERS and "".join(row).isprintable()):
        row = {k: v for k, v in row.items() if k.isprintable() and type(v) in _NUMBERS}
    return row if type(row.get("step")) is int else None
