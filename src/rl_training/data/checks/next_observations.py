"""Last rows of episodes whose next observation is not the one that followed the action.

Many logs are made by shifting the observations of a whole file by one row. The last row of an episode
then has the first observation of the next episode as its next observation. Others repeat the last
observation, or fill in zeros. Neither can be bootstrapped from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rl_training.data.packing.flags import row_breaks

Flags = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]
Table = npt.NDArray[np.float32]
Rank = Callable[[Table, Table], npt.NDArray[np.float64]]

_SAMPLE = 4096  # rows inside episodes that stand for all
_ENDS = 64  # ends and starts of episodes that are compared with each other
_USUAL = 0.75  # mean rank among steps inside episodes up to which a step is an ordinary one
_UNUSUAL = 0.9  # mean rank from which it is none
_TOP = 0.05  # share of the largest steps, which count as jumps
_CERTAIN = 10.0  # standard deviations from what chance explains
_FEW = 5  # ends from which a repetition in a world of few states is no coincidence


@dataclass(frozen=True, eq=False)
class LostNextObs:
    """Last rows of episodes, by what is wrong with their next observation."""

    shifted: Rows  # the first observation of the next episode
    padded: Rows  # the row's observation again, or zeros
    continued: Rows  # that of the next row, and rightly so: a long episode cut into pieces

    @property
    def rows(self) -> Rows:
        """Rows that cannot be bootstrapped from."""
        return np.union1d(self.shifted, self.padded)


def find_lost_next_obs(obs: Table, next_obs: Table, ends: Rows, chosen: Rows) -> LostNextObs:
    """Look at the last rows of some episodes; of the rows inside episodes only a sample is read.

    Args:
        obs: Observations, (rows, width).
        next_obs: Next observations.
        ends: Last row of every episode, in order.
        chosen: Those of them to look at.
    """
    nothing = ends[:0]
    inside = _sample_inside(len(obs), ends)
    if not len(chosen) or not len(inside):
        return LostNextObs(nothing, nothing, nothing)
    rank = _step_ranks(obs[inside], next_obs[inside])
    # `np.roll` makes the first row of the data follow the last one.
    same = ~row_breaks(next_obs[chosen], obs[(chosen + 1) % len(obs)])
    if same.any() and _by_chance(obs, next_obs, inside, ends, same):
        same[:] = False
    padded = _padded(obs, next_obs, inside, chosen) & ~same
    if _goes_on(obs, next_obs, ends, chosen[same], rank):
        return LostNextObs(nothing, chosen[padded], chosen[same])
    other = chosen[~same & ~padded]
    if _one_row_missing(obs, next_obs, ends, other, rank):
        same = ~padded & (same | (chosen < len(obs) - 1))
    return LostNextObs(chosen[same], chosen[padded], nothing)


def follow_slowly(obs: Table, next_obs: Table, rows: Rows) -> Flags:
    """Mark rows that the next one follows, if rows that follow are closer than any two rows are."""
    same = ~row_breaks(next_obs[rows], obs[(rows + 1) % len(obs)]) & (rows < len(obs) - 1)
    spread = obs.astype(np.float64).std(axis=0)
    varying = spread > 0
    if not varying.any() or 2 * same.sum() < max(len(rows), 1):
        return np.zeros(len(rows), np.bool_)
    steps = (next_obs[rows[same]].astype(np.float64) - obs[rows[same]])[:, varying]
    # Two rows drawn at random differ by sqrt(2) deviations.
    slow: bool = (np.sqrt((steps**2).mean(axis=0) / 2) / spread[varying]).mean() < 0.5
    return same if slow else np.zeros(len(rows), np.bool_)


def find_period(obs: Table, next_obs: Table, ends: Rows) -> int | None:
    """Find the number of rows after which observations jump, as they do if time limits are not marked."""
    is_inside = np.ones(len(obs), np.bool_)
    is_inside[ends] = False
    inside = np.flatnonzero(is_inside)
    if len(inside) < 100:
        return None
    sample = inside[:: max(1, len(inside) // _SAMPLE)]
    jumps = _step_ranks(obs[sample], next_obs[sample])(obs[inside], next_obs[inside]) > 1 - _TOP
    starts = np.append(0, ends[:-1] + 1)
    step = inside - starts[np.searchsorted(ends, inside)] + 1
    every, jumping = np.bincount(step), np.bincount(step[jumps], minlength=step.max() + 1)
    best, period = _CERTAIN, None
    for length in range(10, min(len(every) // 2, 10_000)):
        count, hits = every[length::length].sum(), jumping[length::length].sum()
        certainty = (hits / count - _TOP) * np.sqrt(count / (_TOP * (1 - _TOP)))
        if certainty > best and hits > 0.6 * count:
            best, period = certainty, length
    return period


def _sample_inside(count: int, ends: Rows) -> Rows:
    """Rows spread evenly over those that are not the last of an episode."""
    is_inside = np.ones(count, np.bool_)
    is_inside[ends] = False
    inside = np.flatnonzero(is_inside)
    return inside[:: max(1, len(inside) // _SAMPLE)]


def _by_chance(obs: Table, next_obs: Table, inside: Rows, ends: Rows, same: Flags) -> bool:
    """True if states repeat, as in a grid world, and the next episode may just start where one ends."""
    states = obs[inside]
    if len(np.unique(states, axis=0)) > 0.5 * len(states):
        return False
    starts = np.append(0, ends[:-1] + 1)
    anywhere = ~row_breaks(next_obs[inside], obs[np.resize(starts, len(inside))])
    return bool(len(same) < _FEW or same.mean() < _UNUSUAL or anywhere.mean() > 0.5)


def _step_ranks(obs: Table, next_obs: Table) -> Rank:
    """Make a function that ranks steps among these, 0 to 1, by the column that changes most."""
    change = next_obs.astype(np.float64) - obs
    spread = obs.astype(np.float64).std(axis=0)
    scale = np.maximum(np.sqrt((change**2).mean(axis=0)), 1e-3 * spread)
    scale[scale == 0] = 1e-12  # a column that never changes inside an episode
    usual = np.sort(np.abs(change / scale).max(axis=1))

    def rank(before: Table, after: Table) -> npt.NDArray[np.float64]:
        size = np.abs((after.astype(np.float64) - before) / scale).max(axis=-1)
        below, up_to = np.searchsorted(usual, size), np.searchsorted(usual, size, "right")
        ranks: npt.NDArray[np.float64] = (below + up_to) / (2 * len(usual))
        return ranks

    return rank


def _goes_on(obs: Table, next_obs: Table, ends: Rows, rows: Rows, rank: Rank) -> bool:
    """True if the next row is an ordinary step away, and the starts of other episodes are not.

    After a reset the next episode's start is as far away as any other start.
    """
    rows = rows[rows < len(obs) - 1]
    if not len(rows):
        return False
    rows = rows[:: max(1, len(rows) // _ENDS)]
    starts = np.append(0, ends[:-1] + 1)
    starts = starts[:: max(1, len(starts) // _ENDS)]
    step = rank(obs[rows], next_obs[rows]).mean()
    others = rank(obs[rows][:, None, :], obs[starts][None, :, :])
    to_others = others[starts[None, :] != rows[:, None] + 1].mean()
    return bool(step < _USUAL and to_others > step + 0.15)


def _one_row_missing(obs: Table, next_obs: Table, ends: Rows, rows: Rows, rank: Rank) -> bool:
    """True if ends jump to one step before the next row: episodes lost their first row."""
    rows = rows[rows < len(obs) - 1]
    if len(rows) < 2 * _FEW:
        return False
    jump = rank(obs[rows], next_obs[rows]).mean()
    from_there = rank(next_obs[rows], obs[rows + 1]).mean()
    starts = ends[ends < len(obs) - 1] + 1
    first_steps = rank(obs[starts], next_obs[starts]).mean()
    return bool(jump > _UNUSUAL and from_there < max(_USUAL, min(first_steps + 0.1, jump)))


def _padded(obs: Table, next_obs: Table, inside: Rows, ends: Rows) -> Flags:
    """Mark ends that repeat their observation or hold zeros, where rows inside episodes do not."""
    padded = np.zeros(len(ends), np.bool_)
    usual = (next_obs[inside] == obs[inside]).all(axis=1).mean()
    copies = (next_obs[ends] == obs[ends]).all(axis=1)
    if usual == 0 or (usual < 0.01 and copies.mean() > 10 * usual and copies.sum() >= _FEW):
        padded |= copies
    if (obs[inside] != 0).any(axis=1).all():
        padded |= (next_obs[ends] == 0).all(axis=1)
    return padded
