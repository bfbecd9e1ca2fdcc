"""Page of a search: its two scores, history, parallel coordinates, slices, importance, and every trial."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rl_training.config import dump_yaml_value
from rl_training.reports.pages.drawing import Chart
from rl_training.reports.pages.page import check_page_packages, write_page
from rl_training.reports.pages.search_charts import SearchCharts
from rl_training.runs.search_record import BEST, SearchRecord, SearchTrial, read_search

ROWS = 25  # of a table that is open at first
_COLUMNS = 24  # options of a table


def write_search_page(directory: str | Path, path: str | Path) -> Path:
    """Write a search as one self-contained HTML file."""
    check_page_packages()
    record = read_search(directory)
    charts = SearchCharts(record)
    best = record.best
    keys = list(dict.fromkeys(key for trial in record.trials for key in trial.values))[:_COLUMNS]
    return write_page(
        path,
        "search.html",
        title=_title(record),
        record=record,
        best=best,
        start=record.trials[0] if record.trials else None,
        counts={
            state: sum(trial.state == state for trial in record.trials)
            for state in ("complete", "pruned", "failed", "waiting")
        },
        facts=_facts(record),
        scores=charts.scores(),
        history=charts.history(),
        parallel=charts.parallel(),
        slices=charts.slices(),
        importance=charts.importance(),
        keys=keys,
        ranked=[(trial, _cells(trial, keys)) for trial in _ranked(record)],
        best_values=[]
        if best is None
        else [(k, dump_yaml_value(v)) for k, v in best.values.items()],
        command=f"rl-training train {Path(directory) / BEST}",
        rows=ROWS,
    )


def write_search_figures(directory: str | Path, target: str | Path) -> list[Path]:
    """Write every chart of the page as SVG and PNG."""
    check_page_packages()
    charts = SearchCharts(read_search(directory))
    named: dict[str, Chart | None] = {
        "scores": charts.scores(),
        "history": charts.history(),
        "parallel": charts.parallel(),
        "importance": charts.importance(),
    }
    for number, chart in enumerate(charts.slices(), 1):
        named[f"slice_{number}_{re.sub(r'[^A-Za-z0-9]+', '_', chart.title)[:60].strip('_')}"] = (
            chart
        )
    written: list[Path] = []
    for name, drawn in named.items():
        if drawn is not None:
            written += drawn.write(Path(target) / name)
    return written


def _title(record: SearchRecord) -> str:
    config = record.settings.get("config")
    config = config if isinstance(config, Mapping) else {}
    return f"Search: {config.get('algo')} on {config.get('env_id') or 'logs'}"


def _facts(record: SearchRecord) -> list[tuple[str, Any]]:
    settings = record.settings
    seeds = settings.get("seeds")
    versions = ", ".join(f"{name} {version}" for name, version in record.versions.items())
    return [
        ("metric", f"{record.metric}, {'higher' if record.mode == 'max' else 'lower'} is better"),
        ("sampler", settings.get("sampler")),
        ("pruner", settings.get("pruner")),
        ("seeds of every trial", dump_yaml_value(seeds) if isinstance(seeds, list) else seeds),
        ("trials in a round", settings.get("round_size")),
        ("seed of the suggestions", settings.get("sample_seed")),
        ("suggested by", versions),
    ]


def _ranked(record: SearchRecord) -> list[SearchTrial]:
    """List complete trials, the best first, then the others in order."""
    order = {"complete": 0, "pruned": 1, "failed": 2, "waiting": 3}
    sign = -1.0 if record.mode == "max" else 1.0

    def rank(trial: SearchTrial) -> tuple[int, float, int]:
        value = sign * (trial.value or 0.0) if trial.state == "complete" else 0.0
        return order[trial.state], value, trial.number

    return sorted(record.trials, key=rank)


def _cells(trial: SearchTrial, keys: Sequence[str]) -> list[str]:
    return [dump_yaml_value(trial.values[key]) if key in trial.values else "" for key in keys]
