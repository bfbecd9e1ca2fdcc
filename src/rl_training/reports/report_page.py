"""Page of a comparison: scores, learning curves, profiles, configurations, data, times, and every run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_training.reports.comparison import Comparison, Improvement
from rl_training.reports.configurations import differences_inside
from rl_training.reports.pages.comparison_charts import (
    PAIRS,
    ROWS,
    Charts,
    ordered_metrics,
    times_by_group,
)
from rl_training.reports.pages.drawing import Chart
from rl_training.reports.pages.page import check_page_packages, write_page

CURVES = 40  # charts of metrics on one page, so that it stays small
_OPEN = 4  # metrics whose charts are shown at first
_PAPER_RUNS = 30  # whose commands are printed; of more, only those that are opened
_SHOWN_PAIRS = 60  # of a table
_SHOWN_NAMES = 200  # of metrics that are not drawn


def write_report(comparison: Comparison, path: str | Path) -> Path:
    """Write the comparison as one self-contained HTML file."""
    check_page_packages()
    charts = Charts(comparison)
    metrics, undrawn = _metrics(comparison, charts)
    runs = [(group, run) for group in comparison.groups for run in group.runs]
    return write_page(
        path,
        "report.html",
        title=_title(comparison),
        comparison=comparison,
        tasks=[(task, charts.scores(task), charts.groups(task)) for task in comparison.tasks],
        rows=ROWS,
        warnings={task.name: _warnings(comparison, task.name) for task in comparison.tasks},
        aggregates=charts.aggregates(),
        metrics=metrics,
        undrawn=undrawn,
        shown_names=_SHOWN_NAMES,
        open=_OPEN,
        profiles=charts.profiles(),
        improvements=charts.improvements(),
        pairs=_pairs(comparison),
        pairs_of_a_chart=PAIRS,
        differing=_differing(comparison),
        data_cards=_data_cards(comparison),
        times=charts.times(),
        seconds=times_by_group(comparison),
        runs=runs,
        paper_runs=_PAPER_RUNS,
        unscored=[(group, run) for group, run in runs if run.missing],
        warned=[(group, run) for group, run in runs if run.report.warnings],
    )


@dataclass(frozen=True)
class Metric:
    """One metric of the page, drawn once per task."""

    name: str
    charts: list[Chart]


def _metrics(comparison: Comparison, charts: Charts) -> tuple[list[Metric], list[str]]:
    """Draw as many metrics as a page takes, the most wanted first; the others by name."""
    names = ordered_metrics(comparison)
    drawn: list[Metric] = []
    left = CURVES
    while names and left > 0:
        name = names.pop(0)
        drawn.append(Metric(name, charts.curves(name)))
        left -= len(drawn[-1].charts)
    return [metric for metric in drawn if metric.charts], names


def _title(comparison: Comparison) -> str:
    labels = list(dict.fromkeys(group.label for group in comparison.groups))
    tasks = [task.name for task in comparison.tasks]
    what = ", ".join(labels) if len(labels) <= 4 else f"{len(labels):,} configurations"
    where = ", ".join(tasks) if len(tasks) <= 3 else f"{len(tasks):,} tasks"
    return f"{what} on {where}" if labels else "No run that can be read"


def _warnings(comparison: Comparison, task: str) -> dict[str, list[str]]:
    """Labels of the groups of a task that a warning is about, by its text."""
    labels: dict[str, list[str]] = {}
    for group in comparison.groups:
        for warning in group.warnings if group.task == task else ():
            labels.setdefault(warning, []).append(group.label)
    return labels


def _pairs(comparison: Comparison) -> Sequence[Improvement]:
    return comparison.improvements[:_SHOWN_PAIRS]


@dataclass(frozen=True)
class Differences:
    """Table of the options in which the configurations of a task differ."""

    task: str
    columns: list[str]
    rows: list[tuple[str, list[Any]]]


def _differing(comparison: Comparison) -> list[Differences]:
    tables = []
    for task in comparison.tasks:
        groups = [group for group in comparison.groups if group.task == task.name and group.runs]
        options = differences_inside(
            [[run.report for run in group.runs] for group in groups], [task.name] * len(groups)
        )
        keys = [key for key in (options[0] if options else ()) if key != "algo"]
        labels = [group.label for group in groups]
        cells = [[_option(mine[key]) for key in keys] for mine in options]
        if not keys:
            continue
        if len(keys) > len(labels):  # the longer side goes down the page
            keys, labels = labels, keys
            cells = [list(column) for column in zip(*cells, strict=True)]
        tables.append(Differences(task.name, keys, list(zip(labels, cells, strict=True))))
    return tables


def _option(value: Any) -> str:
    return "default" if value is None else str(value)


@dataclass(frozen=True)
class DataCard:
    """Facts of a log, those that differ between seeds, and the configurations that learned from it."""

    source: str
    facts: Mapping[str, Any]
    differs: list[str]
    labels: list[str]


def _data_cards(comparison: Comparison) -> list[DataCard]:
    cards: dict[str, DataCard] = {}
    several = len(comparison.tasks) > 1
    for group in comparison.groups:
        label = group.title if several else group.label
        logs = [run.report.dataset for run in group.runs if run.report.dataset]
        if not logs:
            continue
        # seeds that hold out different episodes learn from different parts of one log
        differs = {key for facts in logs for key in facts if facts[key] != logs[0].get(key)}
        facts = {key: value for key, value in logs[0].items() if key not in differs}
        source = str(facts.get("source", "log"))
        shown = {_words(k): v for k, v in facts.items() if k != "source" and _tells(v)}
        key = repr((sorted(facts.items()), sorted(differs)))
        card = cards.setdefault(key, DataCard(source, shown, sorted(map(_words, differs)), []))
        card.labels.append(label)
    return list(cards.values())


def _words(name: str) -> str:
    return name.replace("_", " ").replace(".", ", ")


def _tells(value: Any) -> bool:
    return value is not None and str(value) not in ("", "[]", "{}")
