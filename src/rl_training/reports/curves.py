"""Learning curves of a metric: seeds on a common grid of steps, their mean and a band over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rl_training.reports.comparison import Comparison
from rl_training.reports.grouping import Group
from rl_training.reports.series import Series
from rl_training.reports.statistics import Floats, mean_band

_RESAMPLES = 1_000


@dataclass(frozen=True)
class Curve:
    """One metric of one group.

    Attributes:
        label: label of the group.
        task: name of its task.
        steps: common grid, ascending.
        seeds: seed of each row of `values`.
        values: a row per run that has the metric; NaN before its first and after its last step.
        mean: mean over runs; NaN where a run that finished has no value.
        low: lower end of the bootstrap band of the mean; None with one run.
        high: upper end.
    """

    label: str
    task: str
    steps: Floats
    seeds: tuple[int, ...]
    values: Floats
    mean: Floats
    low: Floats | None
    high: Floats | None


def metric_names(comparison: Comparison) -> dict[str, tuple[str, ...]]:
    """Names of all metrics of the runs, sorted, by the part before the slash: `{"eval": ("eval/return_mean", ...)}`."""
    names = sorted(
        {name for group in comparison.groups for run in group.runs for name in run.series}
    )
    prefixes: dict[str, list[str]] = {}
    for name in names:
        prefixes.setdefault(name.split("/")[0], []).append(name)
    return {prefix: tuple(members) for prefix, members in prefixes.items()}


def metric_curves(comparison: Comparison, metric: str, points: int = 200) -> tuple[Curve, ...]:
    """Curves of a metric, one per group that has it, at no more than `points` steps."""
    curves = (_curve(group, metric, points, comparison.confidence) for group in comparison.groups)
    return tuple(curve for curve in curves if curve is not None)


def _curve(group: Group, metric: str, points: int, confidence: float) -> Curve | None:
    runs = [run for run in group.runs if metric in run.series]
    if not runs:
        return None
    grid = _grid([run.series[metric] for run in runs], points)
    values = np.array([_on_grid(run.series[metric], grid) for run in runs])
    # a run that goes on, or was interrupted, does not cut the mean of the others short
    finished = np.array([run.report.finished for run in runs])
    counted = values[finished] if finished.any() else values
    low, high = mean_band([counted], confidence=confidence, resamples=_RESAMPLES) or (None, None)
    return Curve(
        label=group.label,
        task=group.task,
        steps=grid,
        seeds=tuple(run.report.seed for run in runs),
        values=values,
        mean=counted.mean(0),
        low=low,
        high=high,
    )


def _grid(series: Sequence[Series], points: int) -> Floats:
    """Take all steps of the runs, or, if these are many, as many evenly spaced ones."""
    steps = np.unique(np.concatenate([each.steps for each in series]))
    return steps if len(steps) <= points else np.linspace(steps[0], steps[-1], points)


def _on_grid(series: Series, grid: Floats) -> Floats:
    """Interpolate between the steps of a run; NaN outside of them."""
    return np.interp(grid, series.steps, series.values, left=np.nan, right=np.nan)
