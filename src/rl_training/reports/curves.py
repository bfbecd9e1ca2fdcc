"""Learning curves of a metric: seeds on a common grid of steps, their mean and a band over seeds."""

from __future__ import annotations

from dataclasses import dataclass

from rl_training.reports.comparison import Comparison
from rl_training.reports.statistics import Floats


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
    raise NotImplementedError


def metric_curves(comparison: Comparison, metric: str, points: int = 200) -> tuple[Curve, ...]:
    """Curves of a metric, one per group that has it."""
    raise NotImplementedError
