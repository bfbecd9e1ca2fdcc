"""Groups of runs, one per configuration, with statistics over their seeds; tasks that groups share; remarks on both."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from rl_training.reports.compared_runs import ComparedRun
from rl_training.reports.configurations import (
    dataset_name,
    differences_inside,
    group_by_configuration,
    labels,
    one_line,
    task_names,
)
from rl_training.reports.reference_scores import reference_remark, reference_scores
from rl_training.reports.series import MAX_METRICS
from rl_training.reports.statistics import Summary, summarize

# options of a run on which scores of one task should agree
_SHARED_OPTIONS = {"total_timesteps": "budget", "eval_episodes": "number of evaluation episodes"}


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
        normalised_scores: D4RL-normalised `scores`; empty where the environment has no reference scores.
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
    normalised_scores: tuple[float, ...]
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


def make_groups(
    runs: Sequence[ComparedRun],
    *,
    is_return: bool,
    tasks: Sequence[str] | None = None,
    confidence: float = 0.95,
    seed: int = 0,
) -> list[Group]:
    """Group runs by configuration.

    `is_return` says that scores are returns, which can be normalised. `tasks` names the task of each
    configuration; by default that is `task_names`.
    """
    by_report = {id(run.report): run for run in runs}
    configurations = group_by_configuration(run.report for run in runs)
    if tasks is None:
        tasks = task_names(configurations)
    names = labels(configurations, tasks)
    kinds = [(group[0].algo, task) for group, task in zip(configurations, tasks, strict=True)]
    differs = differences_inside(configurations, kinds)
    groups = []
    for reports, task, label, options in zip(configurations, tasks, names, differs, strict=True):
        members = tuple(_without_repeated_seeds([by_report[id(report)] for report in reports]))
        scores = tuple(run.score for run in members if run.score is not None)
        reference = reference_scores(reports[0].env_id) if is_return else None
        normalised = tuple(map(reference.normalise, scores)) if reference else ()
        groups.append(
            Group(
                label=label,
                task=task,
                algo=reports[0].algo,
                env_id=reports[0].env_id,
                runs=members,
                scores=scores,
                summary=_summary(scores, confidence, seed),
                normalised=_summary(normalised, confidence, seed),
                normalised_scores=normalised,
                differs=options,
                warnings=tuple(_warnings(members)),
            )
        )
    return groups


def _summary(scores: Sequence[float], confidence: float, seed: int) -> Summary | None:
    return summarize([np.array(scores)], confidence=confidence, seed=seed) if scores else None


def _without_repeated_seeds(runs: Sequence[ComparedRun]) -> Iterator[ComparedRun]:
    """Take the score from a run whose seed has one already: it is not an independent sample."""
    scored: dict[int, str] = {}
    for run in runs:
        earlier = scored.get(run.report.seed)
        if run.score is not None and earlier is not None:
            yield replace(run, score=None, missing=f"same configuration and seed as {earlier}")
            continue
        if run.score is not None:
            scored[run.report.seed] = run.report.run
        yield run


def _warnings(runs: Sequence[ComparedRun]) -> Iterator[str]:
    scored = [run for run in runs if run.score is not None]
    if len(scored) == 1:
        yield "one seed: no interval"
    for reason in dict.fromkeys(run.missing for run in runs if run.missing is not None):
        seeds = list(dict.fromkeys(run.report.seed for run in runs if run.missing == reason))
        yield f"{_seeds(seeds)} {'have' if len(seeds) > 1 else 'has'} no score: {reason}"
    for run in scored:
        if run.score is not None and not math.isfinite(run.score):
            yield f"seed {run.report.seed} scored {run.score}: the group is not compared"
    if wide := [run.report.seed for run in runs if run.metrics_left_out]:
        yield f"{_seeds(wide)} logged more than {MAX_METRICS} metrics: the others are left out"
    versions = sorted({run.report.version for run in runs if run.report.version})
    if len(versions) > 1:
        yield f"made by versions {', '.join(versions)}"


def _seeds(seeds: Sequence[int]) -> str:
    return one_line(f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}")


def make_tasks(groups: Sequence[Group]) -> list[Task]:
    """List the tasks of groups, in the order in which they appear."""
    members: dict[str, list[Group]] = {}
    for group in groups:
        members.setdefault(group.task, []).append(group)
    return [
        Task(name, several[0].env_id, tuple(group.label for group in several))
        for name, several in members.items()
    ]


def comparison_notes(groups: Sequence[Group], tasks: Sequence[Task], most: int) -> Iterator[str]:
    """Say what a reader has to know; `most` groups of a task are all compared with each other."""
    finished = [run for group in groups for run in group.runs if run.report.finished]
    if not any(group.scores for group in groups) and finished:
        names = sorted(
            {name for run in finished for name in run.series},
            key=lambda name: (not name.startswith("validation/"), name),
        )
        if names:
            yield f"no run has a score; another metric can be one, such as --metric {names[0]}"
    for task in tasks:
        members = [group for group in groups if group.task == task.name]
        yield from unequal_options(members, task.name)
        if len(members) > most:
            yield (
                f"{task.name}: {len(members)} configurations, so each is compared only with the one of "
                f"the highest interquartile mean, which is chosen after the fact"
            )
    for group in groups:
        remark = group.env_id and group.normalised and reference_remark(group.env_id)
        if remark:
            yield remark
    yield from other_versions(groups)


def unequal_options(groups: Sequence[Group], task: str) -> Iterator[str]:
    """Say that groups of a task differ in budget, evaluation or data, which makes their scores less comparable."""
    datasets = dict.fromkeys(dataset_name(group.runs[0].report) for group in groups)
    names = [name for name in datasets if name is not None]  # online runs have none
    if len(names) > 1:
        yield one_line(f"{task}: the data differs ({', '.join(names)})", 160)
    for key, name in _SHARED_OPTIONS.items():
        values = dict.fromkeys(str(group.runs[0].report.config.get(key)) for group in groups)
        if len(values) > 1:
            yield one_line(f"{task}: the {name} differs ({key}: {', '.join(values)})", 160)


def other_versions(groups: Sequence[Group]) -> Iterator[str]:
    """Say how many runs another version than the installed one made."""
    try:
        this = version("rl-training")
    except PackageNotFoundError:
        return
    others = [
        run.report.version
        for group in groups
        for run in group.runs
        if run.report.version not in (None, this)
    ]
    if others:
        names = one_line(", ".join(sorted(map(str, set(others)))))
        yield f"{len(others)} runs were made by another version ({names}; this is {this})"
