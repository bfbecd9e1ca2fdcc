"""What the learning benchmarks share: cells that are trained once, and the tables of their scores."""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from rl_training.reports.suite_table import markdown_table as table

__all__ = [
    "Cell",
    "Result",
    "listed_versions",
    "mean_and_deviation",
    "read",
    "run_all",
    "save",
    "score",
    "table",
    "versions",
]
Result = dict[str, Any]


class Cell(Protocol):
    """One training."""

    @property
    def name(self) -> str: ...


def versions(*packages: str) -> dict[str, str]:
    return {"python": platform.python_version()} | {name: version(name) for name in packages}


def save(path: Path, result: Result) -> None:
    """In one step: an interrupted benchmark leaves no half of a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}.part")
    part.write_text(json.dumps(result, indent=2) + "\n")
    part.replace(path)


def read(path: Path, config: Any) -> Result | None:
    """None if the cell has not been run, or not with this configuration."""
    if not path.exists():
        return None
    result: Result = json.loads(path.read_text())
    return result if result["config"] == config else None


def score(result: Result) -> str:
    """Say in a line what came out."""
    return f"{result['return_mean']:.1f} ({result['training_seconds']:.0f} s)"


def run_all(
    cells: Sequence[Cell],
    run: Callable[[Any], Result],
    jobs: int,
    summary: Callable[[Result], str] = score,
) -> int:
    """Train each outside this process, in this order; returns how many failed."""
    failed = 0
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=jobs, mp_context=spawn) as pool:
        running = {pool.submit(run, cell): cell for cell in cells}
        try:
            for future in as_completed(running):
                failed += not _report(running[future], future, summary)
        except KeyboardInterrupt:  # safe at any moment: finished cells are saved
            for process in multiprocessing.active_children():
                process.kill()
            raise
    return failed


def _report(cell: Cell, future: Future[Result], summary: Callable[[Result], str]) -> bool:
    """Print what became of a cell; whether it has a score."""
    error = future.exception()
    if error is not None:
        print(f"{cell.name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return False
    print(f"{cell.name}: {summary(future.result())}", flush=True)
    return True


def mean_and_deviation(results: Sequence[Result | None]) -> str:
    """Over seeds, with how many of them there are if some were not run."""
    returns = [result["return_mean"] for result in results if result is not None]
    if not returns:
        return "not run"
    text = f"{statistics.mean(returns):.1f}"
    if len(returns) > 1:
        text += f" ± {statistics.stdev(returns):.1f}"
    return text if len(returns) == len(results) else f"{text} ({len(returns)} of {len(results)})"


def listed_versions(results: Iterable[Result]) -> str:
    """Every set of versions that some result was made with."""
    used = sorted({json.dumps(result["versions"]) for result in results})
    sets = [", ".join(f"{name} {v}" for name, v in json.loads(text).items()) for text in used]
    return "; ".join(sets) or "no results yet"
