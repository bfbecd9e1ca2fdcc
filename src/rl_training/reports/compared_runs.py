"""Runs that take part in a comparison: facts, score and series of each, and those that cannot be read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rl_training.config import CheckpointError, ConfigError, first_line, suggest
from rl_training.reports.series import MAX_METRICS, Series, SeriesCollector
from rl_training.runs.layout import runs_in
from rl_training.runs.reading import RunReport, check_is_run, read_run

Choice = Literal["final", "best"]
SCORE = "eval/return_mean"


@dataclass(frozen=True)
class ComparedRun:
    """One run of a configuration.

    Attributes:
        report: facts about the run: `run` (its path), `seed`, `config`, `step`, `finished`, `stop_reason`,
            `seconds` by span, `latest` and `best` score, `version`, `created`, `command` (makes it again),
            `dataset` (data card: facts of the log it learned from, or an empty mapping), `warnings`.
        score: its value in the comparison; None if it has none.
        missing: reason why it has no score, such as `not finished`; None if it has one.
        series: every metric that it logged, by name.
        metrics_left_out: it logged more metrics than are read.
    """

    report: RunReport
    score: float | None
    missing: str | None
    series: Mapping[str, Series]
    metrics_left_out: bool = False


@dataclass(frozen=True)
class BrokenRun:
    """Run that cannot be read, and why."""

    path: str
    reason: str


def read_runs(
    paths: Sequence[str | Path], metric: str, choice: Choice
) -> tuple[list[ComparedRun], list[BrokenRun]]:
    """Read run directories, or directories of such, each run once.

    A path that is neither is an error, and so is one without any run that can be read.
    """
    if choice == "best" and not is_better_higher(metric):
        raise ConfigError(
            f"the best {metric} cannot be chosen: it is not known to be better if higher"
        )
    runs: list[ComparedRun] = []
    broken: list[BrokenRun] = []
    for directory in _directories(paths):
        try:
            runs.append(_read(directory, metric, choice))
        except CheckpointError as error:
            reason = first_line(error, 500).removeprefix(f"{directory}: ")
            broken.append(BrokenRun(str(directory), reason))
    if not runs:
        more = f" (and {len(broken) - 1} more runs cannot be read)" if len(broken) > 1 else ""
        first = f"{broken[0].path}: {broken[0].reason}{more}" if broken else "no run was given"
        raise CheckpointError(first)
    _check_metric(metric, runs)
    return runs, broken


def is_better_higher(metric: str) -> bool:
    """Tell if higher values of the metric are known to be better."""
    return metric.endswith(("/return_mean", "/success_rate"))


def _directories(paths: Iterable[str | Path]) -> list[Path]:
    """List runs in the order given; one that is reached in two ways appears once."""
    directories: dict[str, Path] = {}
    for path in map(Path, paths):
        several = runs_in(path)
        if not several:
            check_is_run(path)
        for run in several or [path]:
            directories.setdefault(os.path.realpath(run), run)
    return list(directories.values())


def _read(path: Path, metric: str, choice: Choice) -> ComparedRun:
    collector = SeriesCollector(metric)
    report = read_run(path, collector.add)
    series = collector.series()
    score, missing = _score(report, series.get(metric), metric, choice)
    return ComparedRun(report, score, missing, series, collector.left_out)


def _score(
    report: RunReport, series: Series | None, metric: str, choice: Choice
) -> tuple[float | None, str | None]:
    """Return the run's score, or None and the reason why it has none."""
    if not report.finished:
        return None, "not finished"
    if series is None:
        return None, "not evaluated" if metric == SCORE else f"has no {metric}"
    if choice == "best":
        return series.highest, None
    if metric != SCORE:
        return series.last, None
    if report.final is None:
        return None, "its last policy was not evaluated"
    return report.final.mean, None


def _check_metric(metric: str, runs: Sequence[ComparedRun]) -> None:
    names = sorted({name for run in runs for name in run.series})
    if metric == SCORE or metric in names:
        return
    if any(run.metrics_left_out for run in runs):
        raise ConfigError(f"no run has the metric {metric!r} among its first {MAX_METRICS}")
    raise ConfigError(f"no run has the metric {metric!r}{suggest(metric, names)}")
