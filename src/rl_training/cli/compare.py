"""`compare`, and the tables of means and intervals that it shares with `report`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from rl_training import api
from rl_training.cli.console import JsonOption, say, say_json, say_table

if TYPE_CHECKING:
    from rl_training.api import SideComparison, Summary, TaskComparison, Verdict

TOO_HIGH = "chosen after the fact, so it is too high"
_ONE_SEED = "one seed: no interval"

MetricOption = Annotated[
    str,
    typer.Option(
        "--metric", help="Metric to compare: its last value in a finished run.", metavar="NAME"
    ),
]
BestOption = Annotated[
    bool,
    typer.Option(
        "--best", help="Score runs by their best evaluation, which is too high, not by their last."
    ),
]


def compare(
    sides: Annotated[
        list[str],
        typer.Argument(
            metavar="A B...", help="Two or more sides: run directories, or directories of such."
        ),
    ],
    metric: MetricOption = "eval/return_mean",
    best: BestOption = False,
    json: JsonOption = False,
) -> None:
    """Say which of two or more directories of runs is better, and if the difference is real."""
    comparison = api.compare_sides(sides, metric=metric, choice="best" if best else "final")
    if json:
        say_json(api.side_facts(comparison))
        return
    for position, task in enumerate(comparison.tasks):
        if position:
            say()
        chosen = f", {TOO_HIGH}" if best else ""
        say(f"{task.task}: {comparison.choice} {comparison.metric}{chosen}")
        _say_task(task, comparison)
    for verdict in comparison.overall:
        say()
        say("over all tasks that both have")
        _say_verdict(verdict, comparison.confidence)
    for run in comparison.broken:
        say(f"cannot be read, and left out: {run.path}: {run.reason}")
    for note in comparison.notes:
        say(f"note: {note}")


def _say_task(task: TaskComparison, comparison: SideComparison) -> None:
    say_summaries({side.name: side.summary for side in task.sides}, comparison.confidence)
    for verdict in task.verdicts:
        _say_verdict(verdict, comparison.confidence)
    for side in task.sides:
        for warning in side.warnings:
            say(f"  warning: {side.name}: {warning}")
    for note in task.notes:
        say(f"  note: {note}")
    if not task.differs:
        say("  the configurations are the same")
        return
    say("  options that differ")
    rows = [
        (key, *("default" if value is None else str(value) for value in options.values()))
        for key, options in task.differs.items()
    ]
    say_table(("", *(side.name for side in task.sides)), rows)


def _say_verdict(verdict: Verdict, confidence: float) -> None:
    share = f"{confidence:.0%} interval"
    say(f"  {verdict.x} against {verdict.y}: {verdict.sentence}")
    if verdict.difference is not None:
        ends = verdict.difference_interval
        size = max(map(abs, (verdict.difference, *(ends or ()))))
        interval = f"{share} {_span(ends, size)}" if ends else _ONE_SEED
        say(f"    difference of means         {number(verdict.difference, size)}, {interval}")
    ends = verdict.probability_interval
    interval = probability_span(*ends, f"{share} ") if ends else _ONE_SEED
    say(f"    probability of improvement  {verdict.probability:.2f}, {interval}")
    p_value = "below 0.001" if verdict.p_value < 0.001 else f"{verdict.p_value:.3f}"
    say(f"    p-value (Mann-Whitney)      {p_value}")


def probability_span(low: float, high: float, name: str = "") -> str:
    """Write an interval of a probability; sides without overlap have none."""
    return "no overlap" if low == high and low in (0, 1) else f"{name}{low:.2f} to {high:.2f}"


def say_summaries(summaries: Mapping[str, Summary | None], confidence: float) -> None:
    """Write a table of configurations or sides: mean, interquartile mean, and their intervals."""
    rows = []
    for label, summary in summaries.items():
        if summary is None:
            rows.append((label, "0", "no score", "", "", ""))
            continue
        mean, middle = plus_minus(summary.mean, summary.std), number(summary.iqm, size_of(summary))
        of_mean, of_middle = (
            between(ends, summary) for ends in (summary.mean_interval, summary.iqm_interval)
        )
        rows.append((label, str(summary.n), mean, of_mean, middle, of_middle))
    share = f"{confidence:.0%} interval"
    say_table(("", "runs", "mean ± std", share, "IQM", share), rows)


def plus_minus(mean: float, spread: float | None) -> str:
    """Format with four digits of the mean, and as many decimals of the spread, if there is one."""
    size = max(abs(mean), spread or 0.0)
    return number(mean, size) + ("" if spread is None else f" ± {number(spread, size)}")


def between(interval: tuple[float, float] | None, summary: Summary) -> str:
    """Write an interval with as many decimals as the mean has."""
    if interval is None:
        return "one seed" if summary.n == 1 else "none"
    return _span(interval, size_of(summary))


def _span(interval: tuple[float, float], size: float) -> str:
    return f"{number(interval[0], size)} to {number(interval[1], size)}"


def size_of(summary: Summary) -> float:
    """Size of the numbers of a summary, which decides on their decimals."""
    return max(abs(summary.mean), summary.std or 0.0)


def number(value: float, size: float) -> str:
    """Format with four digits of `size`."""
    decimals = 3 - math.floor(math.log10(size)) if 0 < size < math.inf else 0
    return f"{value:.{min(max(decimals, 0), 9)}f}"
