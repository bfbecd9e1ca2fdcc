"""Terminations and truncations, told apart by whatever flags a dataset has.

Only a termination stops bootstrapping; everything else that ends an episode is a truncation.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rl_training.config import DatasetError
from rl_training.data.packing.source import Array

Flags = npt.NDArray[np.bool_]
Ends = npt.NDArray[np.int64]


@dataclass(frozen=True)
class EpisodeFlags:
    """One entry per row; `truncations` is None when the source does not say."""

    terminations: Flags
    truncations: Flags | None
    notes: tuple[str, ...] = ()


def as_flags(values: Array, label: str, first_row: int = 0) -> Flags:
    """Read 0 and 1 of any number type as booleans; another value is an error that names its row."""
    flat = values.reshape(len(values))
    if flat.dtype == np.bool_:
        return flat
    odd = (flat != 0) & (flat != 1)
    if odd.any():
        row = int(odd.argmax())
        raise DatasetError(f"{label} must be 0 or 1, got {flat[row]} at row {first_row + row}")
    return flat.astype(np.bool_)


def combine_flags(
    present: Mapping[str, str], read: Callable[[str], Array], label: str
) -> EpisodeFlags | None:
    """Tell terminations and truncations apart; None when no flag says which rows terminate.

    Args:
        present: The fields of the source: our name to the source's spelling.
        read: Reads all values of a field by our name.
        label: The source's name in errors.
    """

    def flags(name: str) -> Flags | None:
        if name not in present:
            return None
        return as_flags(read(name), f"{label}: {present[name]!r}")

    terminations, truncations = flags("terminations"), flags("truncations")
    dones, masks = flags("dones"), flags("masks")
    notes: list[str] = []
    if masks is not None:
        # OGBench: masks say whether to bootstrap, terminals where a trajectory ends.
        truncations = _either(truncations, _without(terminations, ~masks))
        terminations = ~masks
        notes.append("read terminations from 'masks', and 'terminals' as ends of trajectories")
    elif terminations is None and dones is not None:
        # SB3: a done that the time limit caused is no termination.
        terminations = dones if truncations is None else dones & ~truncations
        if truncations is None:
            notes.append("read 'dones' as terminations: time limits among them stop bootstrapping")
            warnings.warn(
                f"{label}: {present['dones']!r} is read as terminations; "
                "add 'truncations' if some are time limits",
                stacklevel=2,
            )
        dones = None  # used up: it does not say where else an episode ends
    if terminations is None:
        return None
    if truncations is None:
        truncations = _without(dones, terminations)
    if "episode_ids" in present:
        ids = read("episode_ids").reshape(-1)
        changes = np.append(ids[1:] != ids[:-1], False)
        pieces, episodes = int(changes.sum()) + 1, len(np.unique(ids))
        if pieces > episodes:
            notes.append(
                f"{episodes:,} episode ids are in {pieces:,} pieces of rows, each read as an episode"
            )
        cuts = _without(changes, terminations)
        truncations = _either(truncations, cuts)
    return EpisodeFlags(terminations, truncations, tuple(notes))


def episode_ends(terminations: Flags, truncations: Flags) -> Ends:
    """Last row of every episode; the last row of the data always ends one."""
    ends = terminations | truncations
    ends[-1] = True
    return np.flatnonzero(ends).astype(np.int64)


def _without(flags: Flags | None, excluded: Flags) -> Flags | None:
    return None if flags is None else flags & ~excluded


def _either(first: Flags | None, second: Flags | None) -> Flags | None:
    if first is None or second is None:
        return first if second is None else second
    return first | second


def row_breaks(next_obs: npt.NDArray[Any], following_obs: npt.NDArray[Any]) -> Flags:
    """Mark rows whose next observation is not the following row's observation."""
    broken: Flags = (next_obs != following_obs).any(axis=1)
    rows = np.flatnonzero(broken)
    if len(rows):  # values that went through another precision differ in the last digits
        reached, start = next_obs[rows], following_obs[rows]
        tolerance = np.minimum(1e-8, 1e-6 * np.abs(following_obs).max(axis=0))  # units may be tiny
        broken[rows] = ~np.isclose(reached, start, rtol=1e-6, atol=tolerance).all(axis=1)
    return broken
