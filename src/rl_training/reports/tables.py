"""Comparison as one JSON document and as CSV files."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.config import visible
from rl_training.files import written_aside
from rl_training.reports.comparison import Comparison
from rl_training.reports.configurations import summarize_seeds
from rl_training.reports.curves import metric_curves
from rl_training.reports.grouping import Group
from rl_training.reports.sides import SideComparison
from rl_training.reports.statistics import Summary

Row = Mapping[str, Any]
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet would run a cell that begins so


def comparison_facts(comparison: Comparison) -> dict[str, Any]:
    """Comparison as plain values for JSON, without curves and profiles."""
    return {
        "metric": comparison.metric,
        "choice": comparison.choice,
        "score": comparison.score_name,
        "confidence": comparison.confidence,
        "runs": [
            {**run.report.as_dict(), "score": run.score, "missing": run.missing}
            for run in comparison.runs
        ],
        "groups": [_group_facts(group) for group in comparison.groups],
        "tasks": [asdict(task) for task in comparison.tasks],
        "improvements": [asdict(improvement) for improvement in comparison.improvements],
        "aggregates": [
            {**asdict(aggregate), "summary": _summary_facts(aggregate.summary)}
            for aggregate in comparison.aggregates
        ],
        "broken": [asdict(run) for run in comparison.broken],
        "notes": list(comparison.notes),
    }


def _group_facts(group: Group) -> dict[str, Any]:
    return {
        **summarize_seeds([run.report for run in group.runs]),
        "label": group.label,
        "task": group.task,
        "scores": list(group.scores),
        "summary": _summary_facts(group.summary),
        "normalised": _summary_facts(group.normalised),
        "differs": dict(group.differs),
        "warnings": list(group.warnings),
    }


def _summary_facts(summary: Summary | None) -> dict[str, Any] | None:
    return None if summary is None else asdict(summary)


def side_facts(comparison: SideComparison) -> dict[str, Any]:
    """Comparison of sides as plain values for JSON."""
    return asdict(comparison)


def write_tables(comparison: Comparison, directory: str | Path) -> list[Path]:
    """Write `runs.csv`, `groups.csv`, `improvements.csv` and `curves.csv`; returns their paths."""
    tables = {
        "runs": _run_rows(comparison),
        "groups": _group_rows(comparison),
        "improvements": (asdict(improvement) for improvement in comparison.improvements),
        "curves": _curve_rows(comparison),
    }
    return [
        _write(Path(directory) / f"{name}.csv", _COLUMNS[name], rows)
        for name, rows in tables.items()
    ]


_STATISTICS = ("n", "mean", "std", "mean_low", "mean_high", "iqm", "iqm_low", "iqm_high", "median")
_COLUMNS = {
    "runs": ("task", "label", "algo", "env_id", "seed", "score", "missing", "step", "finished",
             "stop_reason", "seconds", "version", "created", "run", "command", "warnings"),
    "groups": ("task", "label", "algo", "env_id", "score", "confidence", *_STATISTICS,
               *(f"normalised_{name}" for name in _STATISTICS), "differs", "warnings"),
    "improvements": ("x", "y", "task", "probability", "low", "high"),
    "curves": ("metric", "task", "label", "seed", "step", "value", "low", "high"),
}  # fmt: skip


def _run_rows(comparison: Comparison) -> Iterator[Row]:
    for group in comparison.groups:
        for run in group.runs:
            facts = run.report.as_dict()
            yield {
                **{name: facts.get(name) for name in _COLUMNS["runs"]},
                "task": group.task,
                "label": group.label,
                "score": run.score,
                "missing": run.missing,
                "seconds": sum(run.report.seconds.values()),
                "warnings": "; ".join(run.report.warnings),
            }


def _group_rows(comparison: Comparison) -> Iterator[Row]:
    for group in comparison.groups:
        yield {
            "task": group.task,
            "label": group.label,
            "algo": group.algo,
            "env_id": group.env_id,
            "score": comparison.score_name,
            "confidence": comparison.confidence,
            **_statistics(group.summary),
            **_statistics(group.normalised, "normalised_"),
            "differs": "; ".join(f"{key}={value}" for key, value in group.differs.items()),
            "warnings": "; ".join(group.warnings),
        }


def _statistics(summary: Summary | None, prefix: str = "") -> Row:
    if summary is None:
        return {}
    facts = asdict(summary)
    for name in ("mean", "iqm"):
        facts[f"{name}_low"], facts[f"{name}_high"] = facts.pop(f"{name}_interval") or (None, None)
    return {f"{prefix}{name}": value for name, value in facts.items()}


def _curve_rows(comparison: Comparison) -> Iterator[Row]:
    """A row per seed and step, and one per step for the mean with its band."""
    for curve in metric_curves(comparison, comparison.metric):
        names = {"metric": comparison.metric, "task": curve.task, "label": curve.label}
        for seed, values in zip(curve.seeds, curve.values, strict=True):
            for step, value in zip(curve.steps, values, strict=True):
                if not np.isnan(value):
                    yield {**names, "seed": seed, "step": step, "value": value}
        for position, step in enumerate(curve.steps):
            if not np.isnan(curve.mean[position]):
                yield {
                    **names,
                    "seed": "mean",
                    "step": step,
                    "value": curve.mean[position],
                    "low": None if curve.low is None else curve.low[position],
                    "high": None if curve.high is None else curve.high[position],
                }


def _write(path: Path, columns: Sequence[str], rows: Iterable[Row]) -> Path:
    with written_aside(path) as aside, aside.open("x", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows([_cell(row.get(name)) for name in columns] for row in rows)
    return path


def _cell(value: Any) -> Any:
    """Write numbers as they are, and text so that no spreadsheet takes it for a formula."""
    if value is None:
        return ""
    if isinstance(value, str):
        text = visible(value.replace("\n", " "))
        return f"'{text}" if text.startswith(_FORMULA) else text
    if isinstance(value, np.floating):
        return int(value) if value.is_integer() else float(value)
    return value
