"""Configurations of runs: grouping of seeds, what differs, and which were trained on the same task."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from math import isfinite, nan
from pprint import pformat
from statistics import fmean, stdev
from typing import Any

from rl_training.runs.reading import RunReport

# keys that may differ between runs of one configuration
RUN_KEYS = ("seed", "output_dir", "tags")


def group_by_configuration(reports: Iterable[RunReport]) -> list[list[RunReport]]:
    """Put runs of one configuration together, sorted by seed; configurations keep their order."""
    groups: dict[str, list[RunReport]] = {}
    for report in reports:
        shared = {key: value for key, value in report.config.items() if key not in RUN_KEYS}
        groups.setdefault(pformat(shared), []).append(report)  # sorts keys of any type
    return [sorted(group, key=lambda report: report.seed) for group in groups.values()]


def differences(groups: Sequence[Sequence[RunReport]]) -> list[dict[str, Any]]:
    """Options, by dotted name, in which a configuration differs from others of its algorithm and environment.

    An option that a configuration leaves at its default is None.
    """
    return differences_inside(groups, [(group[0].algo, group[0].env_id) for group in groups])


def differences_inside(
    groups: Sequence[Sequence[RunReport]], kinds: Sequence[Hashable]
) -> list[dict[str, Any]]:
    """Options in which each configuration differs from others of its kind."""
    options = [flat_options(group[0].config) for group in groups]
    members: dict[Hashable, list[dict[str, Any]]] = {}
    for kind, mine in zip(kinds, options, strict=True):
        members.setdefault(kind, []).append(mine)
    keys = {kind: _differing(several) for kind, several in members.items()}
    return [
        {key: mine.get(key) for key in keys[kind]}
        for kind, mine in zip(kinds, options, strict=True)
    ]


def _differing(options: Sequence[Mapping[str, Any]]) -> list[str]:
    first = options[0]
    keys = dict.fromkeys(key for mine in options for key in mine)
    return [key for key in keys if any(mine.get(key) != first.get(key) for mine in options)]


def flat_options(config: Mapping[Any, Any], prefix: str = "") -> dict[str, Any]:
    """Options by dotted name; `algo_kwargs.` is left out, as on the command line."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if not prefix and key in RUN_KEYS:
            continue
        if isinstance(value, Mapping):
            flat |= flat_options(
                value, "" if not prefix and key == "algo_kwargs" else f"{prefix}{key}."
            )
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def task_names(groups: Sequence[Sequence[RunReport]]) -> list[str]:
    """Name the problem that each configuration was trained on: its environment, or its data without one.

    If an algorithm was trained on several datasets of an environment, these are tasks of their own.
    """
    firsts = [group[0] for group in groups]
    datasets: dict[tuple[str, str | None], set[str | None]] = {}
    for run in firsts:
        datasets.setdefault((run.algo, run.env_id), set()).add(dataset_name(run))
    split = {env_id for (_, env_id), names in datasets.items() if len(names) > 1}
    return [_task_name(run, split) for run in firsts]


def _task_name(run: RunReport, split: set[str | None]) -> str:
    dataset = dataset_name(run)
    if run.env_id is None:
        return dataset or "logs"
    return f"{run.env_id} ({dataset})" if dataset and run.env_id in split else one_line(run.env_id)


def dataset_name(run: RunReport) -> str | None:
    """Name of the log that a run learned from; None without one."""
    options = flat_options(run.config)
    candidates = (options.get("dataset_id"), options.get("dataset_path"), run.dataset.get("source"))
    name = next((str(name) for name in candidates if name is not None), None)
    return None if name is None else one_line(name)


def one_line(value: Any, limit: int = 60) -> str:
    """Write a value of a configuration in one short line."""
    text = " ".join(str(value).split())
    return text if len(text) <= limit else f"{text[: limit // 2 - 1]}...{text[-(limit // 2 - 2) :]}"


def labels(groups: Sequence[Sequence[RunReport]], tasks: Sequence[str]) -> list[str]:
    """Label configurations by algorithm and differing options; unique in a task, alike over tasks."""
    kinds = [(group[0].algo, task) for group, task in zip(groups, tasks, strict=True)]
    keys: dict[str, dict[str, None]] = {}  # by algorithm, whatever the task
    for (algo, _), differs in zip(kinds, differences_inside(groups, kinds), strict=True):
        keys.setdefault(algo, {}).update(dict.fromkeys(differs))
    result: list[str] = []
    taken: set[tuple[str, str]] = set()
    for group, task in zip(groups, tasks, strict=True):
        base = _label(group[0], keys[group[0].algo])
        label, number = base, 1
        while (label, task) in taken:
            number += 1
            label = f"{base} #{number}"
        taken.add((label, task))
        result.append(label)
    return result


def _label(run: RunReport, keys: Iterable[str]) -> str:
    options = flat_options(run.config)
    values = (
        f"{key}={'default' if options.get(key) is None else one_line(options[key], 24)}"
        for key in keys
    )
    return one_line(" ".join([run.algo, *values]), 80)


def deviation(values: Sequence[float]) -> float | None:
    """Sample standard deviation over seeds; None for one seed, which has no spread."""
    if len(values) < 2:
        return None
    # stdev works with fractions, which NaN and infinity are not
    return stdev(values) if all(map(isfinite, values)) else nan


def summarize_seeds(group: Sequence[RunReport]) -> dict[str, Any]:
    """Mean and sample standard deviation over the finished runs of one configuration, the first of each seed."""
    by_seed: dict[int, RunReport] = {}
    for report in group:
        if report.final is not None:
            by_seed.setdefault(report.seed, report)
    finished = list(by_seed.values())
    summary: dict[str, Any] = {
        "algo": group[0].algo,
        "env_id": group[0].env_id,
        "seeds": [report.seed for report in group],
        "finished_seeds": [report.seed for report in finished],
    }
    for name in ("final", "best"):
        means = [getattr(report, name).mean for report in finished]
        if means:
            summary[name] = {"mean": fmean(means), "std": deviation(means)}
    return summary
