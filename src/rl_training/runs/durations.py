"""Durations in words."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """Round to the unit that reads well: `12 s`, `34 min`, `5.6 h`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6_000 else f"{seconds / 3_600:.1f} h"
