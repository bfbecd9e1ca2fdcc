"""Comparison of runs: configurations with their seeds, tasks, intervals, and what could not be read.

`compare_runs` makes it from run directories. Tables, pages and figures show it and compute nothing themselves;
curves of any metric come from `rl_training.reports.curves`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from rl_training.reports.compared_runs import (
    SCORE,
    BrokenRun,
    Choice,
    ComparedRun,
    is_better_higher,
    read_runs,
)
from rl_training.reports.grouping import Group, Task, comparison_notes, make_groups, make_tasks
from rl_training.reports.series import Series
from rl_training.reports.statistics import (
    Floats,
    Summary,
    improvement_interval,
    iqm,
    mean_band,
    performance_profile,
    probability_of_improvement,
    summarize,
)

__all__ = [
    "SCORE",
    "Aggregate",
    "BrokenRun",
    "Choice",
    "ComparedRun",
    "Comparison",
    "Group",
    "Improvement",
    "Profile",
    "Series",
    "Task",
    "compare_runs",
]

MOST_PAIRS = 15  # groups of a task that are all compared with each other
_THRESHOLDS = 101


@dataclass(frozen=True)
class Aggregate:
    """One method over all tasks, in D4RL-normalised scores."""

    label: str
    tasks: tuple[str, ...]
    summary: Summary


@dataclass(frozen=True)
class Improvement:
    """Probability that a run of group `x` scores higher than one of group `y`.

    Attributes:
        x: label of the first group.
        y: label of the second group.
        task: name of the task; None is the average over all tasks that both were trained on.
        probability: from 0 to 1; a tie counts half.
        low: lower end of its interval; None where a side has one seed.
        high: upper end of its interval.
    """

    x: str
    y: str
    task: str | None
    probability: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Profile:
    """Performance profile: share of runs that score above each threshold.

    Attributes:
        label: label of the group.
        task: name of the task; None for all tasks together, in D4RL-normalised scores.
        thresholds: scores, ascending.
        fractions: share of runs above each.
        low: lower end of the interval at each threshold; None with one seed.
        high: upper end.
    """

    label: str
    task: str | None
    thresholds: Floats
    fractions: Floats
    low: Floats | None
    high: Floats | None


@dataclass(frozen=True)
class Comparison:
    """Everything that reports show about several runs.

    Attributes:
        metric: name of the metric that is the score.
        choice: `final`, score of the last policy of finished runs; `best`, the highest score during
            training, which is chosen after the fact and too high.
        confidence: of all intervals, such as 0.95.
        runs: all runs that could be read, in the order in which they were given.
        groups: configurations, in the order in which they were given.
        tasks: problems, in the order in which they were given.
        improvements: for every pair of groups of a task, and over all shared tasks if there are several.
        profiles: for every group, and over all tasks where all scores can be normalised.
        aggregates: methods over all tasks; empty unless there are several tasks that can be normalised.
        broken: runs that could not be read.
        notes: what a reader has to know about the comparison as a whole.
    """

    metric: str
    choice: Choice
    confidence: float
    runs: tuple[ComparedRun, ...]
    groups: tuple[Group, ...]
    tasks: tuple[Task, ...]
    improvements: tuple[Improvement, ...]
    profiles: tuple[Profile, ...]
    aggregates: tuple[Aggregate, ...]
    broken: tuple[BrokenRun, ...]
    notes: tuple[str, ...] = ()

    @property
    def is_better_higher(self) -> bool:
        """Tell if a higher score is known to be better, as it is for returns."""
        return is_better_higher(self.metric)

    @property
    def score_name(self) -> str:
        """Heading of the score; says of the best score that it is too high."""
        if self.choice == "best":
            return f"best {self.metric}, chosen after the fact, so it is too high"
        return f"final {self.metric}"

    @property
    def score_meaning(self) -> str:
        """Origin of the score of a run, in words."""
        if self.choice == "best":
            return "the highest value of a finished run, chosen after the fact"
        if self.metric == SCORE:
            return "that of the last policy of a finished run"
        return "the last value of a finished run"


def compare_runs(
    paths: Sequence[str | Path],
    *,
    metric: str = SCORE,
    choice: Choice = "final",
    confidence: float = 0.95,
    seed: int = 0,
) -> Comparison:
    """Read run directories, or directories of such, and compare them.

    A run that cannot be read is listed in `broken`. `seed` is that of the bootstrap.
    """
    runs, broken = read_runs(paths, metric, choice)
    groups = make_groups(runs, is_return=metric == SCORE, confidence=confidence, seed=seed)
    tasks = make_tasks(groups)
    improvements: list[Improvement] = []
    profiles: list[Profile] = []
    for task in tasks:
        members = [group for group in groups if group.task == task.name]
        scores = {group.label: [np.array(group.scores)] for group in members if _is_usable(group)}
        improvements += _improvements(scores, task.name, confidence, seed)
        profiles += _profiles(scores, task.name, confidence, seed)
    aggregates: list[Aggregate] = []
    if len(tasks) > 1:
        improvements += _improvements_over_tasks(groups, confidence, seed)
        normalised = _normalised_over_tasks(groups, tasks)
        profiles += _profiles(normalised, None, confidence, seed)
        aggregates = [
            Aggregate(
                label,
                tuple(task.name for task in tasks if label in task.labels),
                summarize(scores, confidence=confidence, seed=seed),
            )
            for label, scores in normalised.items()
        ]
    return Comparison(
        metric=metric,
        choice=choice,
        confidence=confidence,
        runs=tuple(_in_order(groups, [run.report.run for run in runs])),
        groups=tuple(groups),
        tasks=tuple(tasks),
        improvements=tuple(improvements),
        profiles=tuple(profiles),
        aggregates=tuple(aggregates),
        broken=tuple(broken),
        notes=tuple(dict.fromkeys(comparison_notes(groups, tasks, MOST_PAIRS))),
    )


def _in_order(groups: Sequence[Group], paths: Sequence[str]) -> list[ComparedRun]:
    position = {path: number for number, path in enumerate(paths)}
    runs = [run for group in groups for run in group.runs]
    return sorted(runs, key=lambda run: position[run.report.run])


def _is_usable(group: Group) -> bool:
    """Tell if a group has scores, all of them finite."""
    return bool(group.scores) and bool(np.isfinite(group.scores).all())


def _improvements(
    scores: Mapping[str, list[Floats]], task: str | None, confidence: float, seed: int
) -> list[Improvement]:
    """Compare all pairs; of very many groups, each with the one of the highest interquartile mean."""
    if len(scores) <= MOST_PAIRS:
        pairs = list(combinations(scores, 2))
    else:
        first = max(scores, key=lambda label: float(iqm(scores[label][0])))
        pairs = [(first, label) for label in scores if label != first]
    result = []
    for x, y in pairs:
        sides = scores[x], scores[y]
        interval = improvement_interval(*sides, confidence=confidence, seed=seed)
        probability = probability_of_improvement(*sides)
        result.append(Improvement(x, y, task, probability, *(interval or (None, None))))
    return result


def _improvements_over_tasks(
    groups: Sequence[Group], confidence: float, seed: int
) -> list[Improvement]:
    """Compare methods over the tasks that they share, if these are several."""
    usable = {
        (group.label, group.task): np.array(group.scores) for group in groups if _is_usable(group)
    }
    labels = list(dict.fromkeys(label for label, _ in usable))
    result: list[Improvement] = []
    for x, y in combinations(labels, 2) if len(labels) <= MOST_PAIRS else ():
        shared = [task for label, task in usable if label == x and (y, task) in usable]
        if len(shared) > 1:
            scores = {label: [usable[label, task] for task in shared] for label in (x, y)}
            result += _improvements(scores, None, confidence, seed)
    return result


def _normalised_over_tasks(
    groups: Sequence[Group], tasks: Sequence[Task]
) -> dict[str, list[Floats]]:
    """Normalised scores, an array per task, of each method that has them on every task."""
    scores: dict[str, list[Floats]] = {}
    for group in groups:
        if group.normalised is not None and _is_usable(group):
            scores.setdefault(group.label, []).append(np.array(group.normalised_scores))
    return {label: arrays for label, arrays in scores.items() if len(arrays) == len(tasks)}


def _profiles(
    scores: Mapping[str, list[Floats]], task: str | None, confidence: float, seed: int
) -> list[Profile]:
    """Profiles of several groups at common thresholds."""
    if not scores:
        return []
    pooled = np.concatenate([array for arrays in scores.values() for array in arrays])
    margin = 0.05 * (pooled.max() - pooled.min()) or 1.0
    thresholds = np.linspace(pooled.min() - margin, pooled.max() + margin, _THRESHOLDS)
    profiles = []
    for label, arrays in scores.items():
        band = mean_band(
            [(array[:, None] > thresholds).astype(np.float64) for array in arrays],
            confidence=confidence,
            seed=seed,
        )
        low, high = band or (None, None)
        fractions = performance_profile(arrays, thresholds)
        profiles.append(Profile(label, task, thresholds, fractions, low, high))
    return profiles
