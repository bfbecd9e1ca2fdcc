"""Columns of very different scale: networks see only the largest, unless observations are normalised."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rl_training.data.checks.column_checks import Columns, Finding

COLUMN_SCALE = "column-scale"
SCALE_RATIO = 100.0  # up to here networks cope; built-in and MuJoCo tasks stay below
_ROUNDING = 1e-6  # of float32, relative: less than that is no variation
_SAMPLE = 20_000  # rows that are looked at


class UnevenColumns(NamedTuple):
    """The column with the largest values, and the one whose changes are smallest beside them."""

    largest: int
    size: float  # root mean square
    smallest: int
    deviation: float

    @property
    def ratio(self) -> float:
        return self.size / self.deviation

    def __str__(self) -> str:
        return (
            f"observation column {self.largest} is about {self.size:.3g}, while column "
            f"{self.smallest} varies by {self.deviation:.3g}: a ratio of {self.ratio:,.0f}"
        )


def uneven_columns(obs: npt.NDArray[np.floating]) -> UnevenColumns | None:
    """Compare sizes and deviations of columns; None if they are within `SCALE_RATIO`.

    A column that never changes counts by its size, which drowns the others, but not as a small one.
    """
    step = max(1, len(obs) // _SAMPLE)
    rows = obs[::step].astype(np.float64)
    mean, deviation = rows.mean(axis=0), rows.std(axis=0)
    size = np.hypot(mean, deviation)
    varying = deviation > _ROUNDING * np.abs(mean)
    if not varying.any():
        return None
    largest = int(size.argmax())
    smallest = int(np.where(varying, deviation, np.inf).argmin())
    uneven = UnevenColumns(largest, float(size[largest]), smallest, float(deviation[smallest]))
    return uneven if uneven.ratio > SCALE_RATIO else None


def check_scales(data: Columns) -> Iterator[Finding]:
    uneven = uneven_columns(data.obs)
    if uneven is not None:
        yield Finding(
            "warning", COLUMN_SCALE, str(uneven), None,
            "train with normalize_observations: true, the default of all offline algorithms; rlpd "
            "and some packaged configurations have it off",
        )  # fmt: skip
