"""Columns that vary by less than float32 can tell apart, as time stamps do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from rl_training.data.checks.column_checks import Finding

_LOST = 0.1  # rounding of this share of a column's deviation is more than noise
_NOISE = 1e-13  # relative to a column's size; what arithmetic in float64 leaves in a constant one


def check_precision(
    fields: Mapping[str, npt.NDArray[Any]], spellings: Mapping[str, str]
) -> Iterator[Finding]:
    """Compare columns before and after they are stored as float32."""
    for name in ("obs", "actions", "rewards"):
        values = fields.get(spellings.get(name, ""))
        if values is None or not len(values) or values.dtype.kind not in "fiu":
            continue
        if name == "actions" and values.dtype.kind != "f":  # discrete
            continue
        yield from _rounded(spellings[name], values.reshape(len(values), -1))


def _rounded(name: str, table: npt.NDArray[Any]) -> Iterator[Finding]:
    if table.dtype.itemsize <= 4 and table.dtype.kind == "f":
        return
    largest = np.abs(table).max(axis=0)
    for column in np.flatnonzero(largest <= np.finfo(np.float32).max):  # others are errors
        exact = table[:, column].astype(np.float64)
        if np.ptp(exact) <= _NOISE * largest[column]:
            continue
        lost = np.std(exact - exact.astype(np.float32)) / np.std(exact)
        if lost > _LOST:
            yield Finding(
                "warning", "lost-precision",
                f"column {column} of {name!r} varies by {np.ptp(exact):.3g} around "
                f"{exact.mean():.6g}: stored as float32, it loses {min(lost, 1):.0%} of that", None,
                "subtract a constant from the column before it is saved, or leave it out",
            )  # fmt: skip
