"""Lines about a search: one for each trial, and the end of all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rl_training import api
from rl_training.cli.console import say, say_json, say_table
from rl_training.config import dump_yaml_value

_ROWS = 10  # trials that are printed, the best first


def trial_line(trial: api.SearchTrial, record: api.SearchRecord) -> str:
    """Say in one line how a trial ended."""
    if trial.state == "failed":
        return f"trial {trial.number} failed: {trial.reason}"
    line = f"trial {trial.number}: {record.metric} {trial.value:.4g}"
    if trial.state == "pruned":
        line += f", ended early at step {max(trial.steps, default=0)}"
    best = record.best
    if best is not None and best.number != trial.number:
        line += f" (best: {best.value:.4g}, trial {best.number})"
    return f"{line}  {' '.join(f'{key}={_cell(trial.values, key)}' for key in trial.values)}"


def say_search(record: api.SearchRecord, directory: Path) -> None:
    """Print the best trials, the honest score of the best one, and what mattered."""
    complete = [trial for trial in record.trials if trial.state == "complete"]
    sign = -1 if record.mode == "max" else 1
    ranked = sorted(complete, key=lambda trial: (sign * (trial.value or 0.0), trial.number))
    keys = list(dict.fromkeys(key for trial in ranked for key in trial.values))
    if ranked:
        rows = [
            [str(t.number), *(_cell(t.values, key) for key in keys), f"{t.value:.4g}"]
            for t in ranked[:_ROWS]
        ]
        say_table(["trial", *keys, record.metric], rows)
    counts = {
        state: sum(trial.state == state for trial in record.trials)
        for state in ("complete", "pruned", "failed", "waiting")
    }
    say(
        f"trials      {', '.join(f'{number} {state}' for state, number in counts.items() if number)}"
    )
    best = record.best
    if best is None:
        return
    start = record.trials[0]
    if start.state == "complete" and best.number != 0:
        say(f"start       {start.value:.4g}, trial 0: the configuration as it was given")
    wrong = "high" if record.mode == "max" else "low"
    say(
        f"best        {best.value:.4g}, trial {best.number}: chosen by this number, so too {wrong} on average"
    )
    _say_fresh(record)
    if record.importance:
        shares = sorted(record.importance.items(), key=lambda item: -item[1])
        say("importance  " + ", ".join(f"{key} {share:.0%}" for key, share in shares))
    elif record.importance_note:
        say(f"importance  none: {record.importance_note}")
    say(f"train it    rl-training train {directory / 'best.yaml'}")
    say(f"page        rl-training report {directory} -o report.html")


def report_search(directory: str, page: str | None, figures: str | None, json: bool) -> None:
    """Show a search, and write its page and figures."""
    record = api.read_search(directory)
    written = [] if page is None else [api.write_search_page(directory, page)]
    if figures is not None:
        written += api.write_search_figures(directory, figures)
    if json:
        facts = api.search_facts(directory, record)
        say_json({**facts, "written": [str(path) for path in written]})
        return
    say_search(record, Path(directory))
    for path in written:
        say(f"written     {path}")


def _say_fresh(record: api.SearchRecord) -> None:
    fresh = record.fresh
    if fresh is None or fresh.iqm is None:
        return
    seeds = len(fresh.seeds)
    text = f"{fresh.iqm:.4g}, over {seeds} fresh seed{'s' * (seeds > 1)}"
    if fresh.low is not None:
        text += f"; {fresh.confidence:.0%} interval [{fresh.low:.4g}, {fresh.high:.4g}]"
    say(f"honest      {text}")


def _cell(values: Mapping[str, Any], key: str) -> str:
    return dump_yaml_value(values[key]) if key in values else ""
