"""Comparison of runs: configurations with their seeds, tasks, intervals, and what could not be read.

`compare_runs` makes it from run directories. Tables, pages and figures show it and compute nothing themselves;
curves of any metric come from `rl_training.reports.curves`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rl_training.reports.statistics import Floats, Summary
from rl_training.runs.reading import RunReport

Choice = Literal["final", "best"]
SCORE = "eval/return_mean"


@dataclass(frozen=True)
class Series:
    """One metric of one run over steps; long ones are averaged in blocks of rows."""

    steps: Floats
    values: Floats


@dataclass(frozen=True)
class ComparedRun:
    """One run of a configuration.

    Attributes:
        report: facts about the run: `run` (its path), `seed`, `config`, `step`, `finished`, `stop_reason`,
            `seconds` by span, `latest` and `best` score, `version`, `created`, `command` (makes it again),
            `dataset` (data card: facts of the log it learned from, or an empty mapping), `warnings`.
        score: its value in the comparison; None if it has none.
        missing: reason why it has no score, such as `still going`; None if it has one.
        series: every metric that it logged, by name.
    """

    report: RunReport
    score: float | None
    missing: str | None
    series: Mapping[str, Series]


@dataclass(frozen=True)
class Group:
    """Runs of one configuration with several seeds.

    Attributes:
        label: algorithm and the options in which it differs from others of its task; unique in its task,
            and the name of one method over tasks.
        task: name of the task, see `Task`.
        algo: name of the algorithm.
        env_id: environment, or None for runs on logs alone.
        runs: all its runs, by seed, with those that have no score.
        scores: chosen score of every run that has one, in the order of `runs`.
        summary: statistics of `scores`; None if there are none.
        normalised: `summary` of D4RL-normalised scores; None where the environment has no reference scores.
        differs: options, by dotted name, in which it differs from others of its task; None is the default.
        warnings: everything a reader has to know before trusting `summary`, such as one seed only.
    """

    label: str
    task: str
    algo: str
    env_id: str | None
    runs: tuple[ComparedRun, ...]
    scores: tuple[float, ...]
    summary: Summary | None
    normalised: Summary | None
    differs: Mapping[str, Any]
    warnings: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Name that is unique in the whole comparison."""
        return f"{self.label} on {self.task}"


@dataclass(frozen=True)
class Task:
    """Problem whose scores can be compared: an environment, with its dataset if one method has several.

    Attributes:
        name: environment, with the dataset where that tells tasks apart; the dataset for runs on logs alone.
        env_id: environment, or None.
        labels: labels of the groups that were trained on it.
    """

    name: str
    env_id: str | None
    labels: tuple[str, ...]


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
class BrokenRun:
    """Run that cannot be read, and why."""

    path: str
    reason: str


@dataclass(frozen=True)
class Comparison:
    """Everything that reports show about several runs.

    Attributes:
        metric: name of the metric that is the score.
        choice: `final`, score of the last policy of finished runs; `best`, the highest score during
            training, which is chosen after the fact and too high.
        confidence: of all intervals, such as 0.95.
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
    groups: tuple[Group, ...]
    tasks: tuple[Task, ...]
    improvements: tuple[Improvement, ...]
    profiles: tuple[Profile, ...]
    aggregates: tuple[Aggregate, ...]
    broken: tuple[BrokenRun, ...]
    notes: tuple[str, ...] = ()

    @property
    def score_name(self) -> str:
        """Heading of the score; says of the best score that it is too high."""
        if self.choice == "best":
            return f"best {self.metric}, chosen after the fact, so it is too high"
        return f"final {self.metric}"


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
    raise NotImplementedError
