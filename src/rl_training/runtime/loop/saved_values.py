"""Numbers out of a checkpoint, which a stranger may have written: anything else is refused at once."""

from __future__ import annotations

from typing import Any


def whole(value: Any) -> int:
    """Return a count, or -1, which stands for never."""
    if type(value) is not int or not -1 <= value < 2**62:
        raise TypeError(f"{str(value)[:40]!r} is not a count")
    return value


def number(value: Any) -> float:
    """Return a number; it may be infinite or NaN."""
    if type(value) not in (int, float):
        raise TypeError(f"{str(value)[:40]!r} is not a number")
    return float(value)


def whole_or_none(value: Any) -> int | None:
    return None if value is None else whole(value)


def number_or_none(value: Any) -> float | None:
    return None if value is None else number(value)
