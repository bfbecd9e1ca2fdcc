"""Sides against each other: directories of runs, task by task, with a plain sentence on every pair."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import isfinite
from pathlib import Path
from typing import Any

from rl_training.config import ConfigError
from rl_training.reports.compared_runs import (
    SCORE,
    BrokenRun,
    Choice,
    ComparedRun,
    is_better_higher,
    read_runs,
)
from rl_training.reports.configurations import (
    differences_inside,
    group_by_configuration,
    task_names,
)
from rl_training.reports.grouping import Group, make_groups, other_versions, unequal_options
from rl_training.reports.statistics import Summary
from rl_training.reports.verdicts import Judge, Verdict


@dataclass(frozen=True)
class Side:
    """One argument of the comparison on one task.

    Attributes:
        name: short name of the directory, unique among the sides.
        seeds: seeds whose runs have a score.
        scores: their scores.
        summary: statistics of `scores`; None if there are none.
        warnings: seeds without a score and why, several configurations, and the like.
    """

    name: str
    seeds: tuple[int, ...]
    scores: tuple[float, ...]
    summary: Summary | None
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class TaskComparison:
    """All sides on one task: statistics of each, a verdict per pair, and the options in which they differ."""

    task: str
    sides: tuple[Side, ...]
    verdicts: tuple[Verdict, ...]
    differs: Mapping[str, Mapping[str, Any]]  # option, then side
    notes: tuple[str, ...]


@dataclass(frozen=True)
class SideComparison:
    """Result of `compare_sides`; `overall` has verdicts over several shared tasks."""

    metric: str
    choice: Choice
    confidence: float
    paths: Mapping[str, str]  # of the sides, by name
    tasks: tuple[TaskComparison, ...]
    overall: tuple[Verdict, ...]
    broken: tuple[BrokenRun, ...]
    notes: tuple[str, ...]


def compare_sides(
    paths: Sequence[str | Path],
    *,
    metric: str = SCORE,
    choice: Choice = "final",
    confidence: float = 0.95,
    seed: int = 0,
) -> SideComparison:
    """Compare run directories, or directories of such, with each other; each path is one side."""
    if len(paths) < 2:
        raise ConfigError("compare needs two sides or more: rl-training compare A/ B/")
    names = _names(paths)
    read = {
        name: read_runs([path], metric, choice) for name, path in zip(names, paths, strict=True)
    }
    _check_disjoint({name: runs for name, (runs, _) in read.items()})
    tasks = _tasks({name: runs for name, (runs, _) in read.items()})
    groups = {
        name: make_groups(runs, is_return=metric == SCORE, tasks=tasks[name])
        for name, (runs, _) in read.items()
    }
    judge = Judge(is_better_higher(metric), confidence, seed)
    compared = [_compare_task(task, groups, judge) for task in _shared(tasks)]
    return SideComparison(
        metric=metric,
        choice=choice,
        confidence=confidence,
        paths={name: str(path) for name, path in zip(names, paths, strict=True)},
        tasks=tuple(compared),
        overall=tuple(_over_tasks(compared, names, judge)),
        broken=tuple(run for _, broken in read.values() for run in broken),
        notes=tuple(other_versions([group for several in groups.values() for group in several])),
    )


def _check_disjoint(sides: Mapping[str, Sequence[ComparedRun]]) -> None:
    """Refuse a run that is on two sides: it would be compared with itself."""
    owners: dict[str, str] = {}
    for name, runs in sides.items():
        for run in runs:
            owner = owners.setdefault(os.path.realpath(run.report.run), name)
            if owner != name:
                raise ConfigError(f"{run.report.run} is on two sides: {owner} and {name}")


def _names(paths: Sequence[str | Path]) -> list[str]:
    """Last parts of the paths if these tell the sides apart, else the paths."""
    short = [Path(path).name for path in paths]
    if all(short) and len(set(short)) == len(short):
        return short
    full = [str(Path(path)) for path in paths]
    if len(set(full)) < len(full):
        raise ConfigError("a side is given twice")
    return full


def _tasks(sides: Mapping[str, Sequence[ComparedRun]]) -> dict[str, list[str]]:
    """Name the task of every configuration of every side.

    If one algorithm was trained on several datasets of an environment, and no two sides on one of these, the data is
    what is compared: the task is the environment.
    """
    configurations = {
        name: group_by_configuration(run.report for run in runs) for name, runs in sides.items()
    }
    together = [group for several in configurations.values() for group in several]
    names = task_names(together)
    environments = [group[0].env_id or name for group, name in zip(together, names, strict=True)]
    for candidate in (names, environments):
        rest = iter(candidate)
        tasks = {name: [next(rest) for _ in several] for name, several in configurations.items()}
        if _shared(tasks):
            return tasks
    trained = (f"{name} on {', '.join(dict.fromkeys(several))}" for name, several in tasks.items())
    raise ConfigError(f"the sides have no task in common: {'; '.join(trained)}")


def _shared(tasks: Mapping[str, Sequence[str]]) -> list[str]:
    """List the tasks of more than one side."""
    every = dict.fromkeys(task for several in tasks.values() for task in several)
    return [task for task in every if sum(task in several for several in tasks.values()) > 1]


def _compare_task(task: str, groups: Mapping[str, Sequence[Group]], judge: Judge) -> TaskComparison:
    members = {
        name: [group for group in several if group.task == task] for name, several in groups.items()
    }
    members = {name: several for name, several in members.items() if several}
    sides = {name: _side(name, several, judge) for name, several in members.items()}
    usable = {name: side.scores for name, side in sides.items() if _is_usable(side)}
    return TaskComparison(
        task=task,
        sides=tuple(sides.values()),
        verdicts=tuple(
            judge.verdict(x, y, task, [usable[x]], [usable[y]]) for x, y in combinations(usable, 2)
        ),
        differs=_differences(members),
        notes=tuple(
            unequal_options([each for several in members.values() for each in several], task)
        ),
    )


def _side(name: str, groups: Sequence[Group], judge: Judge) -> Side:
    runs = [run for group in groups for run in group.runs if run.score is not None]
    scores = tuple(run.score for run in runs if run.score is not None)
    warnings = [warning for group in groups for warning in group.warnings]
    if len(groups) > 1:
        warnings.append(f"runs of {len(groups)} configurations are taken together")
    seeds = tuple(run.report.seed for run in runs)
    return Side(name, seeds, scores, judge.summary(scores), tuple(warnings))


def _is_usable(side: Side) -> bool:
    return bool(side.scores) and all(map(isfinite, side.scores))


def _over_tasks(
    compared: Sequence[TaskComparison], names: Sequence[str], judge: Judge
) -> Iterator[Verdict]:
    """Judge every pair over all tasks that both have, if these are several."""
    tables = [
        {side.name: side.scores for side in task.sides if _is_usable(side)} for task in compared
    ]
    for x, y in combinations(names, 2):
        shared = [table for table in tables if x in table and y in table]
        if len(shared) > 1:
            scores = ([table[name] for table in shared] for name in (x, y))
            yield judge.verdict(x, y, None, *scores)


def _differences(members: Mapping[str, Sequence[Group]]) -> dict[str, dict[str, Any]]:
    """Options that differ between sides; of several configurations of a side, that of the first."""
    firsts = [[several[0].runs[0].report] for several in members.values()]
    differs = differences_inside(firsts, [None] * len(firsts))
    keys = differs[0] if differs else {}
    return {
        key: {name: options[key] for name, options in zip(members, differs, strict=True)}
        for key in keys
    }
