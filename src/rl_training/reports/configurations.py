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
    result = []
    for kind, mine in zip(kinds, options, strict=True):
        others = [theirs for other, theirs in zip(kinds, options, strict=True) if other == kind]
        keys = dict.fromkeys(key for theirs in others for key in theirs)
        result.append(
            {
                key: mine.get(key)
                for key in keys
                if any(theirs.get(key) != mine.get(key) for theirs in others)
            }
        )
    return result


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


def deviation(values: Sequence[float]) -> float | None:
    """Sample standard deviation over seeds; None for one seed, which has no spread."""
    if len(values) < 2:
        return None
    # stdev works with fractions, which NaN and infinity are not
    return stdev(values) if all(map(isfinite, values)) else nan


def summarize_seeds(group: Sequence[RunReport]) -> dict[str, Any]:
    """Mean and sample standard deviation over the finished runs of one configuration."""
    finished = [report for report in group if report.final is not None]
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
