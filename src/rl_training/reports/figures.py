"""Every chart of a comparison as files for a paper: SVG and PNG."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from rl_training.reports.comparison import Comparison
from rl_training.reports.pages.comparison_charts import Charts, ordered_metrics
from rl_training.reports.pages.drawing import Chart
from rl_training.reports.pages.page import check_page_packages
from rl_training.reports.report_page import CURVES


def write_figures(comparison: Comparison, directory: str | Path) -> list[Path]:
    """Write every chart of the page into a directory, named after what it shows."""
    check_page_packages()
    written: list[Path] = []
    names: set[str] = set()
    for chart in _all_charts(comparison):
        name = _free_name(chart.title, names)
        written += chart.write(Path(directory) / name)
    return written


def _all_charts(comparison: Comparison) -> Iterator[Chart]:
    charts = Charts(comparison)
    scores = [charts.scores(task) for task in comparison.tasks]
    yield from (chart for chart in (*scores, charts.aggregates(), charts.times()) if chart)
    yield from charts.profiles()
    yield from charts.improvements()
    drawn = 0
    for metric in ordered_metrics(comparison):
        if drawn >= CURVES:
            return
        curves = charts.curves(metric)
        drawn += len(curves)
        yield from curves


def _free_name(title: str, names: set[str]) -> str:
    """Turn a title into a file name, with a number if another chart has it."""
    base = re.sub(r"[^A-Za-z0-9.-]+", "_", title).strip("_.-").lower()[:80] or "figure"
    name = next(n for i in count(1) if (n := base if i == 1 else f"{base}_{i}") not in names)
    names.add(name)
    return name
