"""The single checks behind `check_dataset`: columns in, findings out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from rl_training.data.checks.duplicates import hash_rows, repeated_episodes, repeated_rows

Column = npt.NDArray[np.float32]
Flags = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]
Level = Literal["error", "warning", "info"]

_SHARED = 0.01  # rewards that differ by less than this share of their size have a constant part


@dataclass(frozen=True)
class Finding:
    """One thing to know about a dataset, the first row that shows it, and what to do."""

    level: Level
    name: str
    message: str
    row: int | None
    fix: str


@dataclass(frozen=True, eq=False)
class Columns:
    """A dataset as arrays; episodes are absent when their boundaries are unknown."""

    obs: Column  # (rows, obs_dim)
    actions: Column  # (rows, action_width)
    rewards: Column  # (rows,)
    next_obs: Column
    terminations: Flags
    truncations: Flags
    discrete: bool
    first_action: int | None  # as `TransitionDataset.first_action`
    starts: Rows | None
    lengths: Rows | None
    shown_rows: int  # how many rows a message lists

    @property
    def ends(self) -> Flags:
        return self.terminations | self.truncations

    def at(self, rows: Rows) -> str:
        return list_rows(rows, self.shown_rows)


def list_rows(rows: Rows, shown: int) -> str:
    """`rows 3, 7, 9 and 40 more`."""
    text = ("row " if len(rows) == 1 else "rows ") + ", ".join(map(str, rows[:shown]))
    return text + (f" and {len(rows) - shown:,} more" if len(rows) > shown else "")


def check_observations(obs: Column, shown_rows: int = 3) -> Iterator[Finding]:
    constant = np.flatnonzero(obs.min(axis=0) == obs.max(axis=0))
    if len(constant) and len(obs) > 1:
        columns = list_rows(constant, shown_rows).replace("row", "column")
        value = f"is always {obs[0, constant[0]]:g}" if len(constant) == 1 else "never change"
        # Many simulators have columns that are always 0; only all of them is surely a fault.
        level: Level = "warning" if len(constant) == obs.shape[1] else "info"
        yield Finding(
            level, "constant-observation", f"observation {columns} {value}", 0,
            "leave the column out, or repair the sensor that should fill it",
        )  # fmt: skip


def check_rewards(rewards: Column, terminations: Flags, shown_rows: int = 3) -> Iterator[Finding]:
    if len(rewards) > 1 and rewards.min() == rewards.max():
        # A reward per step is a task (CartPole, MountainCar); a column of 0 was likely not logged.
        lost = rewards[0] == 0
        endless = not terminations.any()
        fine = (
            "add episodes that reach the goal: without an end there is nothing to tell apart"
            if endless else "fine if episodes end on failure"
        )  # fmt: skip
        yield Finding(
            "warning" if lost or endless else "info", "constant-reward",
            f"every reward is {rewards[0]:g}", 0, "log the reward of the task" if lost else fine,
        )  # fmt: skip
        return
    outliers = _reward_outliers(rewards, terminations)
    if len(outliers):
        usual = np.delete(rewards, outliers)
        low, high = float(usual.min()), float(usual.max())
        yield Finding(
            "warning", "reward-outlier",
            f"reward {rewards[outliers[0]]:g} is far outside the usual range "
            f"[{low:g}, {high:g}] at {list_rows(outliers, shown_rows)}", int(outliers[0]),
            f"correct these rows, or set reward_clip_min: {low:.4g} and reward_clip_max: {high:.4g}",
        )  # fmt: skip
    magnitude = np.abs(rewards)
    magnitude[outliers] = 0
    largest = float(magnitude.max())
    if largest > 1e4:
        yield Finding(
            "warning", "reward-magnitude",
            f"rewards reach {largest:g}, which makes value errors and gradients huge",
            int(magnitude.argmax()),
            _smaller_rewards(np.delete(rewards, outliers), bool(terminations.any())),
        )  # fmt: skip


def _smaller_rewards(rewards: Column, terminates: bool) -> str:
    """Advise a scale, or a shift if rewards are large only in what all of them share."""
    low, high = float(rewards.min()), float(rewards.max())
    largest = max(abs(low), abs(high))
    if high - low > _SHARED * largest:
        return f"set reward_scale: {10.0 ** -np.floor(np.log10(largest)):g}"
    advice = f"they differ by {high - low:g} only, which scaling would wipe out: "
    advice += f"set reward_shift: {-np.median(rewards):.6g}"
    return advice + (", which also changes what it is worth to terminate" if terminates else "")


def _reward_outliers(rewards: Column, terminations: Flags) -> Rows:
    """Rare rewards beyond 100 interquartile ranges and ten times what the others reach."""
    rows = np.flatnonzero(~terminations)  # a bonus or penalty at the end is part of many tasks
    few = max(3, len(rows) // 100)
    if len(rows) <= few:
        return rows[:0]
    low, median, high = np.percentile(rewards[rows], [25, 50, 75])
    distance = np.abs(rewards[rows].astype(np.float64) - median)
    usual = np.partition(distance, -few - 1)[-few - 1]
    far = (distance > 100 * (high - low)) & (distance > 10 * usual)
    return rows[far] if usual > 0 else rows[:0]


def check_duplicates(data: Columns) -> Iterator[Finding]:
    matrices = [data.obs, data.actions, data.rewards[:, None], data.next_obs]
    hashes = hash_rows(matrices)
    rows = repeated_rows(hashes, matrices)
    if not len(rows):
        return
    # In a world of few states the same step is taken again and again.
    level: Level = "info" if _is_integer(data.obs) else "warning"
    if data.starts is not None and data.lengths is not None:
        episodes = repeated_episodes(hashes, data.starts, data.lengths)
        if len(episodes):
            first = int(data.starts[episodes[0]])
            yield Finding(
                level, "duplicate-episodes",
                f"{len(episodes):,} of {len(data.starts):,} episodes repeat an earlier one; "
                f"the first starts at row {first}", first,
                "remove the copies: they weigh double and leak between training and validation",
            )  # fmt: skip
            repeated = np.zeros(len(data.starts), np.bool_)
            repeated[episodes] = True
            rows = rows[~np.repeat(repeated, data.lengths)[rows]]
    if len(rows):
        yield Finding(
            level, "duplicate-rows",
            f"{len(rows):,} of {len(hashes):,} transitions repeat an earlier one: {data.at(rows)}",
            int(rows[0]), "remove the copies, unless the environment really repeats itself",
        )  # fmt: skip


def _is_integer(values: Column) -> bool:
    return bool((values[:1000] == np.round(values[:1000])).all())
