"""Table of a benchmark suite: Markdown for pages, plain cells for a terminal, JSON. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from rl_training.reports.statistics import Summary, summarize

SCORE = "return"  # column of suites that have one
MISSING = "—"  # of what the suite does not have
_VERSIONS = ("python", "rl-training", "torch", "gymnasium", "mujoco", "numpy")
Scored = Mapping[str, Any]


@dataclass(frozen=True)
class CellScores:
    """One cell: where it stands, and what each seed came to, None if it has not been run."""

    row: str
    column: str
    config: str
    seeds: tuple[int, ...]
    runs: tuple[Scored | None, ...]

    @property
    def done(self) -> list[Scored]:
        return [run for run in self.runs if run is not None]

    @property
    def returns(self) -> list[float]:
        return [float(run["return_mean"]) for run in self.done]

    @property
    def summary(self) -> Summary | None:
        return summarize([np.array(self.returns)]) if self.returns else None

    def text(self, statistic: Literal["mean", "iqm"] = "mean") -> str:
        """Write the score over seeds, with how many of them there are if some are missing."""
        summary = self.summary
        if summary is None:
            return "not run"
        if statistic == "mean":
            text = f"{summary.mean:.1f}"
            text += "" if summary.std is None else f" ± {summary.std:.1f}"
        else:
            ends = summary.iqm_interval
            text = f"{summary.iqm:.1f}" + (f" [{ends.low:.1f}, {ends.high:.1f}]" if ends else "")
        return text if summary.n == len(self.runs) else f"{text} ({summary.n} of {len(self.runs)})"


@dataclass(frozen=True)
class SuiteTable:
    """Scores of a suite as a table."""

    title: str
    command: str
    row_title: str
    column_title: str
    layout: Literal["grid", "list"]
    statistic: Literal["mean", "iqm"]
    episodes: int
    references: Mapping[str, Mapping[str, float]]
    cells: tuple[CellScores, ...]

    @property
    def header(self) -> list[str]:
        if self.layout == "grid":
            return [self.row_title, *map(_as_code, self._columns)]
        known = [title for name in self.references for title in (name, f"above {name}")]
        return [self.row_title, self.column_title, SCORE, *known, "warned"]

    @property
    def rows(self) -> list[list[str]]:
        return self._grid() if self.layout == "grid" else [self._line(cell) for cell in self.cells]

    @property
    def _columns(self) -> list[str]:
        return list(dict.fromkeys(cell.column for cell in self.cells))

    def _grid(self) -> list[list[str]]:
        by_place = {(cell.row, cell.column): cell for cell in self.cells}
        rows = [
            [name, *(f"{known[c]:.1f}" if c in known else MISSING for c in self._columns)]
            for name, known in self.references.items()
        ]
        for row in dict.fromkeys(cell.row for cell in self.cells):
            cells = [by_place.get((row, column)) for column in self._columns]
            texts = [MISSING if cell is None else cell.text(self.statistic) for cell in cells]
            rows.append([_as_code(row), *texts])
        return rows

    def _line(self, cell: CellScores) -> list[str]:
        known: list[str] = []
        for scores in self.references.values():
            score = scores.get(cell.column)
            if score is None:
                known += [MISSING, MISSING]
                continue
            above = sum(value > score for value in cell.returns)
            known += [f"{score:.1f}", f"{above} of {len(cell.done)}"]
        warned = sum(bool(run.get("warnings")) for run in cell.done)
        place = [_as_code(cell.row), _as_code(cell.column)]
        return [*place, cell.text(self.statistic), *known, f"{warned} of {len(cell.done)}"]

    def markdown(self) -> str:
        """Write the table and the versions that made it."""
        return f"{markdown_table(self.header, self.rows)}\n\nVersions: {self.versions()}."

    def page(self) -> str:
        """Write the table with all that a reader needs to judge it."""
        seeds = dict.fromkeys(seed for cell in self.cells for seed in cell.seeds)
        entry = (
            "mean ± sample standard deviation"
            if self.statistic == "mean"
            else "interquartile mean with its 95 % bootstrap interval"
        )
        return (
            f"# {self.title}\n\n`{self.command}`\n\nReturn of the final policy over {self.episodes} episodes that "
            f"training never saw: {entry} over seeds {', '.join(map(str, seeds))}. {MISSING}: not in the suite.\n\n"
            f"{self.markdown()}\n"
        )

    def versions(self) -> str:
        """List every set of versions that some run was made with."""
        sets = {
            ", ".join(
                f"{name} {run['versions'][name]}"
                for name in _VERSIONS
                if run.get("versions", {}).get(name)
            )
            for cell in self.cells
            for run in cell.done
        }
        return "; ".join(sorted(sets)) or "no results yet"

    def facts(self) -> dict[str, Any]:
        """Return everything as JSON."""
        return {
            "title": self.title,
            "command": self.command,
            "episodes": self.episodes,
            "references": {name: dict(known) for name, known in self.references.items()},
            "cells": [_cell_facts(cell) for cell in self.cells],
        }


def _cell_facts(cell: CellScores) -> dict[str, Any]:
    runs = [
        {"seed": seed, **({} if run is None else _run_facts(run))}
        for seed, run in zip(cell.seeds, cell.runs, strict=True)
    ]
    return {
        "row": cell.row,
        "column": cell.column,
        "config": cell.config,
        "summary": None if cell.summary is None else asdict(cell.summary),
        "runs": runs,
    }


def _run_facts(run: Scored) -> dict[str, Any]:
    names = ("return_mean", "return_std", "training_seconds", "warnings", "date", "git", "versions")
    return {name: run.get(name) for name in names}


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in (header, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(header), *lines[1:]])


def _as_code(name: str) -> str:
    """Write names as code, which have no spaces; text stays."""
    return name if " " in name or "`" in name or name == SCORE else f"`{name}`"
