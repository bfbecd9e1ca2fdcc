"""Remarks on a comparison as a whole: budgets and evaluations that differ, versions, reference scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version

from rl_training.reports.configurations import one_line
from rl_training.reports.grouping import Group, Task
from rl_training.reports.reference_scores import reference_remark

# options of a run on which scores of one task should agree
_SHARED_OPTIONS = {"total_timesteps": "budget", "eval_episodes": "number of evaluation episodes"}


def comparison_notes(groups: Sequence[Group], tasks: Sequence[Task], most: int) -> Iterator[str]:
    """Say what a reader has to know; `most` groups of a task are all compared with each other."""
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
    yield from _other_versions(groups)


def unequal_options(groups: Sequence[Group], task: str) -> Iterator[str]:
    """Say that groups of a task differ in budget or evaluation, which makes their scores less comparable."""
    for key, name in _SHARED_OPTIONS.items():
        values = dict.fromkeys(str(group.runs[0].report.config.get(key)) for group in groups)
        if len(values) > 1:
            yield one_line(f"{task}: the {name} differs ({key}: {', '.join(values)})", 160)


def _other_versions(groups: Sequence[Group]) -> Iterator[str]:
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
