"""Ends of episodes: time limits marked as terminations, flags one row off, lost next observations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rl_training.data.checks.next_observations import LostNextObs, find_lost_next_obs, follow_slowly
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.packing.flags import row_breaks

Flags = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]
Table = npt.NDArray[np.float32]

_SHARE = 0.9  # a mislabelled limit or a misplaced flag shows in nearly all episodes, not in each


@dataclass(frozen=True, eq=False)
class TimeLimit:
    """Terminated rows at one and the same length."""

    rows: Rows
    length: int
    complete: int  # episodes with a marked end


@dataclass(frozen=True, eq=False)
class EpisodeEnds:
    """Judgement of the last rows of all episodes."""

    time_limit: TimeLimit | None
    lost: LostNextObs  # among rows that are bootstrapped, or would be without a wrong termination
    harmless: Rows  # terminated rows with the first observation of the next episode
    going_on: Rows  # terminated rows after which the next row goes on where they ended
    offset: int  # 1 if ends are marked one row late, -1 if one row early, else 0
    misplaced: str = ""  # names of the flags that `offset` is about


def judge_ends(
    obs: Table,
    next_obs: Table,
    terminations: Flags,
    truncations: Flags,
    starts: Rows,
    lengths: Rows,
) -> EpisodeEnds:
    """Look at the last row of every episode; the rows inside are sampled."""
    ends = starts + lengths - 1
    terminal = terminations[ends]
    limit = _time_limit(lengths, terminal, truncations[ends], ends)
    nothing = ends[:0]
    kinds = {
        "terminations and truncations": ends,
        "terminations": ends[terminal],
        "truncations": ends[truncations[ends] & ~terminal],
    }
    for misplaced, marked in kinds.items():
        offset = _offset(obs, next_obs, marked, ends)
        if offset:
            lost = LostNextObs(nothing, nothing, nothing)
            return EpisodeEnds(limit, lost, nothing, nothing, offset, misplaced)
    at_limit = np.isin(ends, nothing if limit is None else limit.rows)
    lost = find_lost_next_obs(obs, next_obs, ends, ends[~terminal | at_limit])
    final = ends[terminal & ~at_limit]
    if len(ends) == len(obs):  # no row inside an episode to compare with
        going_on = final[follow_slowly(obs, next_obs, final)]
        return EpisodeEnds(limit, lost, nothing, going_on, 0)
    after = find_lost_next_obs(obs, next_obs, ends, final)
    return EpisodeEnds(limit, lost, after.shifted, after.continued, 0)


def judge_ends_of(dataset: TransitionDataset) -> EpisodeEnds | None:
    """Judge a dataset without a copy of its rows; None when episode boundaries are unknown."""
    if dataset.boundaries == "unknown":
        return None
    return judge_ends(
        dataset.obs.numpy(),
        dataset.next_obs.numpy(),
        dataset.terminations.numpy() > 0,
        dataset.truncations.numpy() > 0,
        dataset.episode_starts,
        dataset.episode_lengths,
    )


def _time_limit(
    all_lengths: Rows, all_terminal: Flags, truncated: Flags, ends: Rows
) -> TimeLimit | None:
    complete = all_terminal | truncated
    lengths, terminal = all_lengths[complete], all_terminal[complete]
    if len(lengths) < 2 or lengths.max() < 2:
        return None
    limit = lengths.max()
    at_limit = lengths == limit
    suspicious = at_limit & terminal
    count = suspicious.sum()
    # An episode that is cut off before the limit, as the last of a log often is, tells nothing.
    nearly_all = count >= max(2, _SHARE * (at_limit | terminal).sum())
    # Some episodes may end early; then only many ends at one great length are suspicious.
    many = limit >= 50 and count >= max(3, 0.1 * len(lengths), _SHARE * at_limit.sum())
    if not nearly_all and not many:
        return None
    return TimeLimit(ends[complete][suspicious], int(limit), len(lengths))


def _offset(obs: Table, next_obs: Table, marked: Rows, ends: Rows) -> int:
    """Find out whether rows break off next to the marked ends instead of at them."""
    inner = marked[(marked > 0) & (marked < len(obs) - 2)]
    if len(inner) < 2:
        return 0
    here = row_breaks(next_obs[inner], obs[inner + 1])
    for offset in (1, -1):
        there = inner - offset
        breaks = row_breaks(next_obs[there], obs[there + 1]) & ~np.isin(there, ends)
        if (breaks & ~here).mean() >= _SHARE:
            return offset
    return 0
