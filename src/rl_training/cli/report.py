"""`report`: scores and times of runs, read from their directories."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rl_training import api
from rl_training.cli.console import JsonOption, say, say_json

if TYPE_CHECKING:
    from rl_training.api import RunReport, Score


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Run directories, finished or not, or directories of such."),
    ],
    json: JsonOption = False,
) -> None:
    """Show how runs ended, what they reached and where their time went."""
    directories = [run for path in runs for run in (api.runs_in(path) or [path])]
    reports = [api.read_run(run) for run in dict.fromkeys(directories)]
    groups = api.group_by_configuration(reports)
    differing = api.differences(groups)
    if json:
        several = [
            {**api.summarize_seeds(group), "differs": differs}
            for group, differs in zip(groups, differing, strict=True)
            if len(group) > 1
        ]
        say_json({"runs": [report.as_dict() for report in reports], "groups": several})
        return
    for position, (group, differs) in enumerate(zip(groups, differing, strict=True)):
        if position:
            say()
        if len(group) == 1:
            _say_run(group[0], differs)
        else:
            _say_group(group, differs, api.summarize_seeds(group))


def _title(run: RunReport, differs: dict[str, Any]) -> str:
    """Name algorithm, environment, and the options that other configurations have otherwise."""
    options = (f", {key} {'default' if value is None else value}" for key, value in differs.items())
    return f"{run.algo} on {run.env_id or 'logs'}{''.join(options)}"


def _say_run(run: RunReport, differs: dict[str, Any]) -> None:
    say(run.run)
    say(f"  {_title(run, differs)}, seed {run.seed}, step {run.step}: {_ending(run)}")
    if run.latest is None or run.best is None:
        say("  not evaluated")
    else:
        name = "latest" if run.final is None else "final"
        say(f"  {name:6}  {_score(run.latest)} at step {run.latest.step}, {run.episodes} episodes")
        among = f"chosen among {run.evaluations} evaluations, so it is too high"
        chosen = among if run.evaluations > 1 else "the only evaluation"
        say(f"  best    {_score(run.best)} at step {run.best.step}, {chosen}")
    _say_times([run])


def _say_group(
    group: Sequence[RunReport], differs: dict[str, Any], summary: dict[str, Any]
) -> None:
    say(f"{_title(group[0], differs)}: {len(group)} runs of one configuration")
    rows = [("seed", "step", "final", "best", "at step", "seconds", "end", "run")]
    for run in group:
        final = "-" if run.final is None else _score(run.final)
        best = ("-", "-") if run.best is None else (_score(run.best), str(run.best.step))
        seconds = f"{sum(run.seconds.values()):.0f}"
        rows.append((str(run.seed), str(run.step), final, *best, seconds, _ending(run), run.run))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        say("  " + "  ".join(cells).rstrip())
    number = len(summary["finished_seeds"])
    for name, remark in (("final", ""), ("best", ", chosen, so it is too high")):
        if name in summary:
            mean = _plus_minus(summary[name]["mean"], summary[name]["std"])
            say(f"  {name:6}  {mean} over {number} finished run{'s' * (number > 1)}{remark}")
    _say_times(group)


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
    return _plus_minus(score.mean, score.std)


def _plus_minus(mean: float, spread: float | None) -> str:
    """Format with four digits of the mean, and as many decimals of the spread, if there is one."""
    size = max(abs(mean), spread or 0.0)
    decimals = 3 - math.floor(math.log10(size)) if 0 < size < math.inf else 0
    decimals = min(max(decimals, 0), 9)
    return f"{mean:.{decimals}f}" + ("" if spread is None else f" ± {spread:.{decimals}f}")


def _ending(run: RunReport) -> str:
    return f"stopped ({run.stop_reason})" if run.finished else "not finished"
