"""Runs of one configuration with several seeds: grouping, mean and standard deviation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite, nan
from pprint import pformat
from statistics import fmean, pstdev
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


def summarize_seeds(group: Sequence[RunReport]) -> dict[str, Any]:
    """Mean and standard deviation over the finished runs of one configuration."""
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
            # pstdev works with fractions, which NaN and infinity are not
            spread = pstdev(means) if all(map(isfinite, means)) else nan
            summary[name] = {"mean": fmean(means), "std": spread}
    return summary
