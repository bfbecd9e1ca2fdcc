"""Checks of episodes: do rows follow on, are ends marked where and as they happened?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rl_training.data.checks.column_checks import Columns, Finding
from rl_training.data.checks.episode_ends import EpisodeEnds, TimeLimit, judge_ends
from rl_training.data.checks.next_observations import find_period
from rl_training.data.packing.flags import row_breaks

_MANY = 0.4  # share of the rows inside episodes; of rows that are all there twice it is half
_REPAIR = "`rl-training data convert IN OUT.npz --repair`"


def check_sequence(data: Columns) -> Iterator[Finding]:
    judged = None
    if data.starts is not None and data.lengths is not None:
        judged = judge_ends(
            data.obs, data.next_obs, data.terminations, data.truncations, data.starts, data.lengths
        )
        yield from _broken_sequence(data, judged)
    if not data.ends.any() or judged is None:
        yield Finding(
            "warning", "no-episode-ends",
            "no row is marked as terminated or truncated: episodes are unknown"
            if not data.ends.any() else "rows do not follow on: episodes are unknown", None,
            "add 'truncations' or 'episode_ids'; without them there are no returns, "
            "n-step targets or next actions",
        )  # fmt: skip
    if judged is not None:
        yield from _missing_limits(data)
        yield from _next_observations(data, judged)
        if judged.time_limit is not None:
            yield _time_limit(judged.time_limit, judged)


def _broken_sequence(data: Columns, judged: EpisodeEnds) -> Iterator[Finding]:
    broken = row_breaks(data.next_obs[:-1], data.obs[1:]) & ~data.ends[:-1]
    rows = np.flatnonzero(broken)
    if not len(rows):
        return
    fix = "mark the end of the episode in 'truncations', or restore the missing rows"
    message = f"next observation is not the following observation at {data.at(rows)}"
    if judged.offset:
        late = judged.offset > 0
        message += f": {_subject(judged)} marked one row too {'late' if late else 'early'}"
        fix = f"move {judged.misplaced} one row {'up' if late else 'down'}"
    elif len(rows) > _MANY * int((~data.ends).sum()):  # no end was forgotten: the order is wrong
        before = ~row_breaks(data.next_obs[1:], data.obs[:-1])
        if before.mean() > 0.5:
            message += ": next observations are those of the row before"
            fix = "leave them out of the file: they are then read from the next row"
        else:
            message += ": rows are not in the order of time, or some are repeated"
            fix = (
                "sort the rows by episode and time. If that cannot be done, leave 'truncations' and "
                "'episode_ids' out: single transitions can still be learned from"
            )
    yield Finding("error", "broken-sequence", message, int(rows[0]), fix)


def _subject(judged: EpisodeEnds) -> str:
    return f"{judged.misplaced} are" if " and " not in judged.misplaced else "ends are"


def _missing_limits(data: Columns) -> Iterator[Finding]:
    assert data.starts is not None
    assert data.lengths is not None
    period = find_period(data.obs, data.next_obs, data.starts + data.lengths - 1)
    if period is not None:
        first = int(data.starts[(data.lengths > period).argmax()]) + period - 1
        yield Finding(
            "warning", "missing-time-limits",
            f"observations jump every {period:,} rows, as they do where a new episode starts, but "
            "no end is marked there", first,
            f"if episodes are {period:,} rows long, mark their last rows in 'truncations' and check "
            "the log again: the next observations of these rows are lost",
        )  # fmt: skip


def _next_observations(data: Columns, judged: EpisodeEnds) -> Iterator[Finding]:
    assert data.starts is not None
    fix = f"drop these rows, their next observation is lost: {_REPAIR}"
    cases = {
        "shifted-next-obs": (judged.lost.shifted, "the first observation of the next episode"),
        "padded-next-obs": (judged.lost.padded, "a copy of the observation, or zeros,"),
    }
    for name, (lost, what) in cases.items():
        rows = lost[~data.terminations[lost]]
        if len(rows):
            yield Finding(
                "error", name,
                f"{len(rows):,} of {len(data.starts):,} episodes have in their last row {what} as "
                f"next observation, and values are bootstrapped from it: {data.at(rows)}",
                int(rows[0]), fix,
            )  # fmt: skip
    if len(judged.harmless):
        yield Finding(
            "info", "shifted-next-obs",
            f"{len(judged.harmless):,} terminated rows have the first observation of the next "
            f"episode as next observation: {data.at(judged.harmless)}", int(judged.harmless[0]),
            "none needed: nothing is bootstrapped from a terminated row",
        )  # fmt: skip
    if len(judged.going_on):
        yield Finding(
            "warning", "continued-terminations",
            f"after {len(judged.going_on):,} terminated rows the next row goes on where they ended: "
            f"{data.at(judged.going_on)}", int(judged.going_on[0]),
            "if 1 means that an episode goes on, name the field 'masks'; if flags are set in too many "
            "rows, correct them: nothing after a terminated row is learned from",
        )  # fmt: skip
    if len(judged.lost.continued):
        rows = judged.lost.continued
        yield Finding(
            "info", "continued-episodes",
            f"after {len(rows):,} truncated rows the next row goes on an ordinary step further: "
            f"{data.at(rows)}", int(rows[0]),
            "none needed, if long episodes were cut into pieces",
        )  # fmt: skip


def _time_limit(limit: TimeLimit, judged: EpisodeEnds) -> Finding:
    lost = np.isin(limit.rows, judged.lost.rows)
    fix = "mark these rows in 'truncations' instead, so that their value is bootstrapped"
    message = (
        f"{len(limit.rows):,} of {limit.complete:,} episodes end after exactly {limit.length:,} "
        "steps as terminations: that looks like a time limit"
    )
    if lost.any():
        message += f"; {int(lost.sum()):,} of these rows have lost their next observation"
        fix = (
            "do not just mark them in 'truncations': that would bootstrap from a wrong observation. "
            f"{_REPAIR} drops them and marks the rows before them as truncated"
        )
    return Finding("warning", "time-limit", message, int(limit.rows[0]), fix)
