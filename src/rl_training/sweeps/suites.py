"""Benchmark suites: named cells of a table, each a configuration that is trained with every seed and scored.

title: Two algorithms on Pendulum
episodes: 50                      # of the final policy
seeds: [1, 2, 3]
overrides: {device: cpu}          # of every run
references:                       # rows that nobody trains
  behaviour: {pendulum: -607.9}
cells:
  - {row: bc, column: pendulum, config: bc/pendulum}
  - {row: bc wide, column: pendulum, config: bc/pendulum, overrides: {hidden_sizes: [256, 256]}, seeds: [1]}
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import field_validator

from rl_training.config import (
    ConfigError,
    Options,
    Problem,
    option,
    packaged_suite_text,
    packaged_suites,
    parse_yaml,
    suggest,
)
from rl_training.files import read_regular
from rl_training.runtime.config.files import MAX_BYTES, apply_overrides, read_config_values
from rl_training.runtime.config.train_config import TrainConfig
from rl_training.sweeps.description import Trial, make_trial

_MAX_RUNS = 10_000


class CellConfig(Options):
    """One entry of the table."""

    row: str = option(doc="its row", min_length=1)
    column: str = option("return", "its column", min_length=1)
    config: str | dict[str, Any] = option(doc="a packaged name, a file or a mapping")
    overrides: dict[str, Any] = option({}, "keys that this cell sets otherwise")
    seeds: tuple[int, ...] = option((), "seeds; none = those of the suite")


class SuiteConfig(Options):
    """Content of a suite file."""

    title: str = option(doc="what is compared, in a line", min_length=1)
    episodes: int = option(50, "episodes that score each final policy", ge=1, le=1_000_000)
    scoring_seed: int | None = option(None, "seed of these episodes", ge=0, unset="that of the run")
    seeds: tuple[int, ...] = option(doc="seeds of every cell", min_length=1)
    overrides: dict[str, Any] = option({}, "keys that are the same in every run")
    statistic: Literal["mean", "iqm"] = option(
        "mean",
        "entries: mean ± sample standard deviation, or interquartile mean with its 95 % interval",
    )
    layout: Literal["grid", "list"] = option(
        "grid", "a column for each column of the suite, or a line for each cell"
    )
    row_title: str = option("configuration", "heading of the rows")
    column_title: str = option("task", "heading of the columns, in a list")
    references: dict[str, dict[str, float]] = option({}, "known scores by row and column")
    cells: tuple[dict[str, Any], ...] = option(doc="entries of the table", min_length=1)

    @field_validator("seeds")
    @classmethod
    def _seeds_are_distinct(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(seeds)) != len(seeds):
            raise ValueError(f"must be distinct, got {list(seeds)}")
        return seeds


class CellTrial(Trial):
    """Run of a cell, which is named by its place in the table."""

    @property
    def label(self) -> str:
        place = " ".join(map(str, self.differs.values())).replace("`", "")
        return f"{place} seed={self.config.seed}"


@dataclass(frozen=True)
class Cell:
    """One entry of the table: its place, and a trial for each of its seeds."""

    row: str
    column: str
    config: str  # as the suite names it
    trials: tuple[Trial, ...]

    def matches(self, patterns: Sequence[str]) -> bool:
        """Tell if a pattern fits the row, the column, both, or the configuration; no pattern fits all."""
        names = (self.row, self.column, f"{self.row} {self.column}", self.config)
        return not patterns or any(
            fnmatch.fnmatchcase(name, pattern) for name in names for pattern in patterns
        )


@dataclass(frozen=True)
class Suite:
    """Table that is filled by training."""

    name: str
    origin: str  # as the user names it
    config: SuiteConfig
    entries: tuple[CellConfig, ...]

    @classmethod
    def of(cls, origin: str, /, **values: Any) -> Suite:
        """Check a description; its keys are those of a suite file."""
        config = SuiteConfig(**values)
        entries, problems = [], []
        for number, cell in enumerate(config.cells, 1):
            try:
                entries.append(CellConfig(**cell))
            except ConfigError as error:
                problems += [each.under("cells", str(number)) for each in error.problems]
        places = [(entry.row, entry.column) for entry in entries]
        problems += [
            Problem(("cells",), f"there are two cells {row!r}, {column!r}")
            for row, column in dict.fromkeys(place for place in places if places.count(place) > 1)
        ]
        if problems:
            raise ConfigError(problems)
        return cls(Path(origin).stem, origin, config, tuple(entries))

    @classmethod
    def load(cls, name: str | Path) -> Suite:
        """Load a packaged suite or a file."""
        text, origin = _read_text(name)
        values = parse_yaml(text, origin)
        if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
            raise ConfigError(
                f"{origin} must be a mapping with the keys of a suite: title, cells, ..."
            )
        try:
            return cls.of(origin, **values)
        except ConfigError as error:
            raise ConfigError([problem.under(origin) for problem in error.problems]) from None

    def cells(self, directory: str | Path) -> list[Cell]:
        """Make every cell with its trials; a `ConfigError` names each problem of any of them."""
        path = Path(directory).expanduser().absolute()
        cells, problems = [], []
        for number, entry in enumerate(self.entries, 1):
            try:
                cells.append(self._cell(entry, path))
            except ConfigError as error:
                where = f"cell {number}, {entry.row}"
                problems += [Problem((where, *each.path), each.message) for each in error.problems]
        if problems:
            raise ConfigError(problems)
        if sum(len(cell.trials) for cell in cells) > _MAX_RUNS:
            raise ConfigError(f"more than {_MAX_RUNS:,} runs: list fewer cells or seeds")
        return cells

    def _cell(self, entry: CellConfig, directory: Path) -> Cell:
        named = isinstance(entry.config, str)
        values = read_config_values(entry.config) if isinstance(entry.config, str) else entry.config
        merged = apply_overrides(values, {**self.config.overrides, **entry.overrides})
        config = TrainConfig(**merged)
        if config.env_id is None:
            raise ConfigError("has no env_id, so its policy cannot be scored")
        place = {"row": entry.row, "column": entry.column}
        made = [
            make_trial(config.replace(seed=seed), directory, place)
            for seed in entry.seeds or self.config.seeds
        ]
        trials = [CellTrial(trial.name, trial.config, trial.differs) for trial in made]
        name = str(entry.config) if named else config.algo
        return Cell(entry.row, entry.column, name, tuple(trials))


def list_suites() -> dict[str, str]:
    """Title of every packaged suite by its name."""
    return {name: Suite.load(name).config.title for name in packaged_suites()}


def chosen_cells(cells: Sequence[Cell], patterns: Sequence[str]) -> list[Cell]:
    """Choose cells by patterns, each of which must fit one."""
    for pattern in patterns:
        if not any(cell.matches([pattern]) for cell in cells):
            raise ConfigError(f"--only {pattern!r} fits no cell{suggest(pattern, _names(cells))}")
    return [cell for cell in cells if cell.matches(patterns)]


def _names(cells: Sequence[Cell]) -> list[str]:
    return [name for cell in cells for name in (cell.row, cell.column, cell.config)]


def trials_of(cells: Sequence[Cell]) -> Iterator[Trial]:
    """Yield every trial once, though two cells may be the same run."""
    yield from {trial.name: trial for cell in cells for trial in cell.trials}.values()


def comparable(config: Mapping[str, Any]) -> dict[str, Any]:
    """Drop where runs lie from a configuration, which changes no score."""
    return {key: value for key, value in config.items() if key != "output_dir"}


def _read_text(name: str | Path) -> tuple[str, str]:
    path = Path(name)
    try:
        if path.exists() and not path.is_dir():
            return read_regular(path, limit=MAX_BYTES, follow_links=True).decode(), str(path)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not a suite, which is YAML text") from None
    packaged = packaged_suites()
    if str(name) in packaged:
        return packaged_suite_text(str(name)), str(name)
    hint = suggest(str(name), packaged) or f" (packaged: {', '.join(packaged)})"
    raise ConfigError(f"no suite file or packaged suite {str(name)!r}{hint}")
