"""`report`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from rl_training import api
from rl_training.cli.compare import (
    TOO_HIGH,
    BestOption,
    MetricOption,
    between,
    number,
    plus_minus,
    probability_span,
    say_summaries,
    size_of,
)
from rl_training.cli.console import JsonOption, say, say_json, say_table
from rl_training.cli.search_lines import report_search
from rl_training.config import ConfigError

if TYPE_CHECKING:
    from rl_training.api import Comparison, Group, Improvement, RunReport, Score


def report(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN...", help="Run directories, or directories of such."),
    ],
    metric: MetricOption = "eval/return_mean",
    best: BestOption = False,
    csv: Annotated[
        str | None,
        typer.Option("--csv", help="Also write its tables as CSV files to DIR.", metavar="DIR"),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", help="Also write one HTML page.", metavar="FILE"),
    ] = None,
    figures: Annotated[
        str | None,
        typer.Option(
            "--figures", help="Also write every figure as SVG and PNG to DIR.", metavar="DIR"
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show how runs ended, what they reached with which certainty, and where their time went."""
    if output is not None or figures is not None:
        api.check_page_packages()
    if len(runs) == 1 and api.is_search(runs[0]):
        if csv is not None or best or metric != "eval/return_mean":
            raise ConfigError(
                f"{runs[0]} is a search, which has its own metric; to compare its runs, name them: "
                f"{runs[0]}/*__seed*"
            )
        report_search(runs[0], output, figures, json)
        return
    comparison = api.compare_runs(runs, metric=metric, choice="best" if best else "final")
    written = [] if csv is None else api.write_tables(comparison, csv)
    if output is not None:
        written.append(api.write_report(comparison, output))
    if figures is not None:
        written += api.write_figures(comparison, figures)
    if json:
        say_json({**api.comparison_facts(comparison), "written": [str(path) for path in written]})
        return
    _say_comparison(comparison)
    for path in written:
        say(f"written  {path}")


def _say_comparison(comparison: Comparison) -> None:
    for position, group in enumerate(comparison.groups):
        if position:
            say()
        if len(group.runs) == 1:
            _say_run(group, comparison)
        else:
            _say_group(group, comparison)
    for task in comparison.tasks:
        members = [group for group in comparison.groups if group.task == task.name]
        if len(members) > 1 and any(group.summary for group in members):
            _say_task(task.name, members, comparison)
    _say_over_tasks(comparison)
    if comparison.broken:
        say()
        say("cannot be read, and left out")
        for run in comparison.broken:
            say(f"  {run.path}: {run.reason}")
    if comparison.notes:
        say()
    for note in comparison.notes:
        say(f"note: {note}")


def _say_task(task: str, members: Sequence[Group], comparison: Comparison) -> None:
    say()
    say(f"{task}: {comparison.score_name}")
    say_summaries({group.label: group.summary for group in members}, comparison.confidence)
    if any(group.normalised for group in members):
        say("  D4RL-normalised: 0 is a random policy, 100 an expert")
        say_summaries({group.label: group.normalised for group in members}, comparison.confidence)
    improvements = [each for each in comparison.improvements if each.task == task]
    _say_improvements(improvements, comparison.confidence)


def _say_over_tasks(comparison: Comparison) -> None:
    improvements = [each for each in comparison.improvements if each.task is None]
    if comparison.aggregates:
        say()
        say(f"all {len(comparison.tasks)} tasks: D4RL-normalised {comparison.score_name}")
        scores = {each.label: each.summary for each in comparison.aggregates}
        say_summaries(scores, comparison.confidence)
    elif improvements:
        say()
        say(f"all tasks that both have: {comparison.score_name}")
    _say_improvements(improvements, comparison.confidence)


def _say_improvements(improvements: Sequence[Improvement], confidence: float) -> None:
    if not improvements:
        return
    say("  probability that a run of the first scores higher than one of the second")
    rows = [
        (
            each.x,
            each.y,
            f"{each.probability:.2f}",
            "one seed"
            if each.low is None or each.high is None
            else probability_span(each.low, each.high),
        )
        for each in improvements
    ]
    say_table(("first", "second", "P", f"{confidence:.0%} interval"), rows)


def _title(group: Group) -> str:
    """Name algorithm, environment, and the options that other configurations have otherwise."""
    options = (
        f", {key} {'default' if value is None else value}" for key, value in group.differs.items()
    )
    return f"{group.algo} on {group.env_id or 'logs'}{''.join(options)}"


def _say_run(group: Group, comparison: Comparison) -> None:
    run = group.runs[0].report
    say(run.run)
    say(f"  {_title(group)}, seed {run.seed}, step {run.step}: {_ending(run)}")
    if run.latest is None or run.best is None:
        say("  not evaluated")
    else:
        name = "latest" if run.final is None else "final"
        say(f"  {name:6}  {_score(run.latest)} at step {run.latest.step}, {run.episodes} episodes")
        among = f"chosen among {run.evaluations} evaluations, so it is too high"
        chosen = among if run.evaluations > 1 else "the only evaluation"
        say(f"  best    {_score(run.best)} at step {run.best.step}, {chosen}")
    if comparison.metric != "eval/return_mean" and group.summary is not None:
        say(f"  {comparison.score_name}  {number(group.summary.mean, size_of(group.summary))}")
    if group.normalised is not None:
        normalised = number(group.normalised.mean, size_of(group.normalised))
        say(f"  D4RL    {normalised} normalised{_chosen(comparison)}; one seed: no interval")
    _say_times([run])


def _say_group(group: Group, comparison: Comparison) -> None:
    say(f"{_title(group)}: {len(group.runs)} runs of one configuration")
    rows = []
    reports = [run.report for run in group.runs]
    for run in reports:
        final = "-" if run.final is None else _score(run.final)
        best = ("-", "-") if run.best is None else (_score(run.best), str(run.best.step))
        seconds = f"{sum(run.seconds.values()):.0f}"
        rows.append((str(run.seed), str(run.step), final, *best, seconds, _ending(run), run.run))
    say_table(("seed", "step", "final", "best", "at step", "seconds", "end", "run"), rows)
    summary = api.summarize_seeds(reports)
    runs = len(summary["finished_seeds"])
    for name, remark in (("final", ""), ("best", f", {TOO_HIGH}")):
        if name in summary:
            mean = plus_minus(summary[name]["mean"], summary[name]["std"])
            say(f"  {name:6}  {mean} over {runs} finished run{'s' * (runs > 1)}{remark}")
    _say_certainty(group, comparison)
    for warning in group.warnings:
        say(f"  warning: {warning}")
    _say_times(reports)


def _say_certainty(group: Group, comparison: Comparison) -> None:
    """Write mean and interquartile mean of the score with their intervals, and normalised if that is possible."""
    if group.summary is None:
        return
    if comparison.choice == "best" or comparison.metric != "eval/return_mean":
        say(f"  {comparison.score_name}:")
    share = f"{comparison.confidence:.0%} interval"
    for name, summary in (("", group.summary), ("D4RL-normalised ", group.normalised)):
        if summary is None or summary.mean_interval is None:
            continue
        for kind, value, interval in (
            ("mean", summary.mean, summary.mean_interval),
            ("IQM", summary.iqm, summary.iqm_interval),
        ):
            label, digits = f"{name}{kind}", number(value, size_of(summary))
            ends = f"{share} {between(interval, summary)}"
            say(f"  {label:6}  {digits}, {ends}{_chosen(comparison)}")


def _chosen(comparison: Comparison) -> str:
    return f", {TOO_HIGH}" if comparison.choice == "best" else ""


def _say_times(group: Sequence[RunReport]) -> None:
    spans = dict.fromkeys(span for run in group for span in run.seconds)
    seconds = {span: sum(run.seconds.get(span, 0.0) for run in group) for span in spans}
    total = sum(seconds.values())
    if not total:
        say("  no times recorded")
        return
    say(f"  {total:.1f} seconds{' together' * (len(group) > 1)}")
    for span, value in seconds.items():
        say(f"    {span:10}  {value:8.1f}  {value / total:4.0%}")


def _score(score: Score) -> str:
    return plus_minus(score.mean, score.std)


def _ending(run: RunReport) -> str:
    return f"stopped ({run.stop_reason})" if run.finished else "not finished"
