"""Charts of a comparison, for its page and for files."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from rl_training.reports.comparison import Comparison, Group, Improvement, Task
from rl_training.reports.curves import metric_curves, metric_names
from rl_training.reports.pages import charts
from rl_training.reports.pages.charts import IntervalRow
from rl_training.reports.pages.drawing import PALETTE, Chart
from rl_training.reports.pages.points import Line

ROWS = 25  # of one chart
PAIRS = 15  # of one chart of improvements
_FIRST = ("rollout/return_mean", "train/critic_loss", "train/actor_loss")
_ORDER = (
    "eval",
    "validation",
    "rollout",
    "train",
)  # of metrics by their first part; `time` is last
_DECADES = 1e3  # a metric that spans more has a logarithmic axis


class Charts:
    """Charts of one comparison, in which a label has the same colour everywhere."""

    def __init__(self, comparison: Comparison) -> None:
        self._comparison = comparison
        self._colours = _colours(comparison.groups)

    def scores(self, task: Task) -> Chart | None:
        """Mean scores with their intervals, and the score of every seed; None without any score."""
        groups = self.groups(task)
        if not any(group.scores for group in groups):
            return None
        confidence = 100 * self._comparison.confidence
        return charts.intervals(
            f"Mean score on {task.name}, with {confidence:.3g} % intervals",
            [self._score(group) for group in groups[:ROWS]],
            x_title=f"{self._comparison.choice} {self._comparison.metric}",
        )

    def groups(self, task: Task) -> list[Group]:
        """Groups of a task, in the order given; the highest scores first if they are too many for a chart."""
        groups = [group for group in self._comparison.groups if group.task == task.name]
        return sorted(groups, key=_rank) if len(groups) > len(PALETTE) else groups

    def aggregates(self) -> Chart | None:
        """Interquartile means of normalised scores over all tasks."""
        rows = []
        for entry in self._comparison.aggregates[:ROWS]:
            low, high = entry.summary.iqm_interval or (None, None)
            colour = self._colours[entry.label]
            rows.append(IntervalRow(entry.label, entry.summary.iqm, low, high, colour=colour))
        if not rows:
            return None
        title = "Interquartile mean over all tasks"
        return charts.intervals(title, rows, x_title="D4RL-normalised score")

    def curves(self, metric: str, task: Task | None = None) -> list[Chart]:
        """Learning curves of a metric, a chart per task that has it."""
        tasks = [task] if task else self._comparison.tasks
        curves = metric_curves(self._comparison, metric)
        result = []
        for chosen in tasks:
            lines = {
                curve.label: Line(curve.label, curve.steps, curve.mean, curve.low, curve.high)
                for curve in curves
                if curve.task == chosen.name
            }
            if lines:
                log_scale = metric != self._comparison.metric and _spans_decades(lines.values())
                result.append(
                    charts.lines(
                        f"{metric} on {chosen.name}" if len(self._comparison.tasks) > 1 else metric,
                        self._placed(lines),
                        x_title="step",
                        y_title=f"{metric}, logarithmic" if log_scale else metric,
                        log_scale=log_scale,
                    )
                )
        return result

    def profiles(self) -> list[Chart]:
        """Performance profiles, a chart per task and one over all tasks."""
        profiles = self._comparison.profiles
        result = []
        for task in dict.fromkeys(profile.task for profile in profiles):
            lines = {
                p.label: Line(p.label, p.thresholds, p.fractions, p.low, p.high)
                for p in profiles
                if p.task == task
            }
            result.append(
                charts.lines(
                    f"Performance profile, {task or 'all tasks'}",
                    self._placed(lines),
                    x_title="D4RL-normalised score" if task is None else self._comparison.metric,
                    y_title="share of runs above",
                    y_limits=(-0.02, 1.02),
                )
            )
        return result

    def improvements(self) -> list[Chart]:
        """Probabilities of improvement, a chart per task and one over all tasks."""
        pairs = self._comparison.improvements
        return [
            charts.intervals(
                f"Probability of improvement, {task or 'all tasks'}",
                [_improvement(pair) for pair in pairs if pair.task == task][:PAIRS],
                x_title="probability that the first scores higher",
                reference=0.5,
            )
            for task in dict.fromkeys(pair.task for pair in pairs)
        ]

    def times(self) -> Chart | None:
        """Shares of wall-clock time by what it was spent on."""
        seconds = times_by_group(self._comparison)
        groups = list(seconds)[:ROWS]
        spans = dict.fromkeys(
            span for title in groups for span, value in seconds[title].items() if value
        )
        parts = [(span, [seconds[title].get(span, 0.0) for title in groups]) for span in spans]
        return charts.shares("Shares of wall-clock time", groups, parts) if parts else None

    def _score(self, group: Group) -> IntervalRow:
        summary = group.summary
        value = None if summary is None else summary.mean
        low, high = (summary and summary.mean_interval) or (None, None)
        return IntervalRow(
            group.label, value, low, high, group.scores, colour=self._colours[group.label]
        )

    def _placed(self, lines: Mapping[str, Line]) -> list[Line]:
        """Put lines at the places of their colours; labels without a line are empty ones."""
        return [lines.get(label, Line(label, (), ())) for label in self._colours]


def ordered_metrics(comparison: Comparison) -> list[str]:
    """Metrics from the most to the least wanted: the score, returns and losses, the others, times."""
    names = metric_names(comparison)
    first = [comparison.metric, *_FIRST]
    parts = [*_ORDER, *(part for part in names if part not in (*_ORDER, "time")), "time"]
    everything = [metric for part in parts for metric in names.get(part, ())]
    present = {*everything}
    return list(dict.fromkeys([*(metric for metric in first if metric in present), *everything]))


def times_by_group(comparison: Comparison) -> dict[str, dict[str, float]]:
    """Seconds by span, summed over the runs of each group, by its title; groups without times are left out."""
    several = len(comparison.tasks) > 1
    result = {}
    for group in comparison.groups:
        seconds: dict[str, float] = {}
        for run in group.runs:
            for span, value in run.report.seconds.items():
                if math.isfinite(value):
                    seconds[span] = seconds.get(span, 0.0) + max(value, 0.0)
        if any(seconds.values()):
            result[group.title if several else group.label] = seconds
    return result


def _colours(groups: Sequence[Group]) -> dict[str, int]:
    """Number of each label; if they are more than colours, the highest scores are first."""
    labels = dict.fromkeys(group.label for group in groups)
    if len(labels) > len(PALETTE):
        labels = dict.fromkeys(group.label for group in sorted(groups, key=_rank))
    return {label: number for number, label in enumerate(labels)}


def _rank(group: Group) -> float:
    mean = None if group.summary is None else group.summary.mean
    return -mean if mean is not None and math.isfinite(mean) else math.inf


def _spans_decades(lines: Iterable[Line]) -> bool:
    values = np.concatenate([np.asarray(line.y, dtype=float) for line in lines])
    values = values[np.isfinite(values)]
    return bool(values.size and values.min() > 0 and values.max() > _DECADES * values.min())


def _improvement(pair: Improvement) -> IntervalRow:
    return IntervalRow(f"{pair.x}\nover {pair.y}", pair.probability, pair.low, pair.high, colour=0)
