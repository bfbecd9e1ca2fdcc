"""Running of a suite: what has no score is trained and scored, and what has one is kept.

<directory>/
trials.json, trials/, <run>/    a sweep, see `directory`
cells/<run>.json                score of a run: all that the table needs
table.json, table.md            the table
"""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from rl_training.algorithms.registry import load_plugin
from rl_training.config import CheckpointError, ConfigError, RLTrainingError
from rl_training.files import read_json, write_bytes, write_json
from rl_training.imports import starting_processes
from rl_training.reports.suite_table import CellScores, SuiteTable
from rl_training.runs.layout import METADATA, METRICS, result_warnings
from rl_training.runs.reading import read_result, read_rows
from rl_training.runtime.scoring import evaluate_checkpoint
from rl_training.runtime.trust import trust
from rl_training.sweeps.description import Trial
from rl_training.sweeps.directory import SweepDirectory
from rl_training.sweeps.driver import Outcome, driving
from rl_training.sweeps.running import RunOptions, carry_out, check_problems, make_task, record_of
from rl_training.sweeps.suites import Cell, Suite, chosen_cells, comparable, trials_of

CELLS = "cells"
IN_PROCESS_SECONDS = 5.0  # of scoring, above which other processes share the rest
Note = Callable[[str], None]
_Scored = tuple[str, dict[str, Any] | str]  # name of a trial, and its facts or what went wrong


@dataclass(frozen=True)
class SuiteResult:
    """End of a suite: its table, and what is missing from it."""

    directory: Path
    table: SuiteTable
    failed: Mapping[str, str]  # reason by the label of a run
    interrupted: bool


@dataclass(frozen=True)
class SuiteRun:
    """A suite in a directory."""

    suite: Suite
    directory: Path
    cells: tuple[Cell, ...]

    @classmethod
    def of(cls, suite: Suite, directory: str | Path) -> SuiteRun:
        path = Path(directory).expanduser().absolute()
        return cls(suite, path, tuple(suite.cells(path)))

    def saved(self, trial: Trial) -> dict[str, Any] | None:
        """Read the score of a run; None if there is none of this configuration and these episodes."""
        try:
            facts = read_json(self._path(trial.name))
        except (OSError, ValueError):
            return None
        wanted = {
            "config": comparable(trial.config.as_dict()),
            "episodes": self.suite.config.episodes,
            "scoring_seed": self.suite.config.scoring_seed,
        }
        is_wanted = isinstance(facts, dict) and all(
            facts.get(key) == value for key, value in wanted.items()
        )
        return facts if is_wanted and _is_well_formed(facts) else None

    def missing(self, only: Sequence[str] = ()) -> list[Trial]:
        """List the runs of the chosen cells that have no score."""
        chosen = chosen_cells(self.cells, only)
        return [trial for trial in trials_of(chosen) if self.saved(trial) is None]

    def table(self) -> SuiteTable:
        """Put what is there into the table."""
        config = self.suite.config
        cells = [
            CellScores(
                cell.row,
                cell.column,
                cell.config,
                tuple(trial.config.seed for trial in cell.trials),
                tuple(self.saved(trial) for trial in cell.trials),
            )
            for cell in self.cells
        ]
        return SuiteTable(
            config.title, f"rl-training benchmark {self.suite.origin}", config.row_title, config.column_title, config.layout, config.statistic,
            config.episodes, config.references, tuple(cells),
        )  # fmt: skip

    def carry_out(
        self, options: RunOptions, only: Sequence[str] = (), note: Note = lambda _: None
    ) -> SuiteResult:
        """Train and score what is missing; the same call goes on where an earlier one ended."""
        missing = self.missing(only)
        trust(*(trial.config.env_id for trial in missing))
        check_problems(missing)
        files = SweepDirectory(self.directory)
        files.create()
        with files.lock():
            (self.directory / CELLS).mkdir(exist_ok=True)
            files.write({}, map(record_of, trials_of(self.cells)))
            outcomes = self._train(missing, files, options) if missing else []
            interrupted = any(each.state in ("interrupted", "waiting") for each in outcomes)
            failed = {
                trial.label: outcome.error
                for trial, outcome in zip(missing, outcomes, strict=True)
                if outcome.state == "failed"
            }
            if not interrupted:
                failed |= self._score(missing, outcomes, options, note)
        return SuiteResult(self.directory, self.table(), failed, interrupted)

    def _train(
        self, missing: Sequence[Trial], files: SweepDirectory, options: RunOptions
    ) -> list[Outcome]:
        if all(files.is_finished(trial.name) for trial in missing):  # killed while it scored
            return [Outcome(make_task(trial, files, options), "ended") for trial in missing]
        executor = options.make_executor()
        with driving(executor, options.jobs, options.retries, options.report) as driver:
            return carry_out(driver, missing, files, options)

    def _score(
        self,
        missing: Sequence[Trial],
        outcomes: Sequence[Outcome],
        options: RunOptions,
        note: Note,
    ) -> dict[str, str]:
        """Score the final policies and save what each cell needs; returns what went wrong."""
        pairs = zip(missing, outcomes, strict=True)
        ended = {trial.name: trial for trial, outcome in pairs if outcome.state == "ended"}
        config = self.suite.config
        score = partial(
            _score_run, self.directory, episodes=config.episodes, seed=config.scoring_seed
        )
        failed = {}
        for name, facts in _scores(score, list(ended), options):
            trial = ended[name]
            if isinstance(facts, str):
                failed[trial.label] = facts
                continue
            values = comparable(trial.config.as_dict())
            write_json(self._path(name), {**trial.differs, "config": values, **facts})
            note(f"{trial.label}: {facts['return_mean']:.1f} ({facts['training_seconds']:.0f} s)")
        return failed

    def _path(self, name: str) -> Path:
        return self.directory / CELLS / f"{name}.json"


def _is_well_formed(facts: Mapping[str, Any]) -> bool:
    return (
        type(facts.get("return_mean")) in (int, float)
        and isinstance(facts.get("versions"), dict)
        and isinstance(facts.get("warnings"), list)
    )


def write_table(result: SuiteResult) -> list[Path]:
    """Write the table as JSON and as Markdown; returns the paths."""
    facts, text = result.directory / "table.json", result.directory / "table.md"
    write_json(facts, result.table.facts())
    write_bytes(text, result.table.page().encode())
    return [facts, text]


def _scores(
    score: Callable[[str], _Scored], names: list[str], options: RunOptions
) -> Iterator[_Scored]:
    """Score runs in this process; if that takes long, the rest in several others."""
    began = time.perf_counter()
    with _one_thread():
        while names and (options.jobs == 1 or time.perf_counter() - began < IN_PROCESS_SECONDS):
            yield score(names.pop(0))
    if not names:
        return
    spawn = multiprocessing.get_context("spawn")
    with (
        starting_processes(),
        ProcessPoolExecutor(
            options.jobs, mp_context=spawn, initializer=_begin, initargs=(options.plugins,)
        ) as pool,
    ):
        yield from pool.map(score, names)


def _begin(plugins: Sequence[str]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that asked decides
    torch.set_num_threads(1)
    for plugin in plugins:
        load_plugin(plugin)


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _score_run(directory: Path, name: str, *, episodes: int, seed: int | None) -> _Scored:
    """Score the final policy of a run, acting deterministically; an error in words if that fails."""
    run = directory / name
    began = time.perf_counter()
    try:
        # the suite names its environment, which the user has named
        metrics = evaluate_checkpoint(run, num_episodes=episodes, trust_env=True, seed=seed)
        facts = _facts(run)
    except RLTrainingError as error:
        return name, str(error)
    return name, {
        "episodes": episodes,
        "scoring_seed": seed,
        "return_mean": metrics["eval/return_mean"],
        "return_std": metrics["eval/return_std"],
        **facts,
        "scoring_seconds": round(time.perf_counter() - began, 1),
    }


def _facts(run: Path) -> dict[str, Any]:
    """Collect what a table and a page say about a run besides its score."""
    result, rows = read_result(run), read_rows(run / METRICS)
    if not result:
        raise CheckpointError(f"{run} has no result")
    try:
        metadata = read_json(run / METADATA)
    except (OSError, ValueError):
        metadata = {}
    curve = [(row["step"], row["eval/return_mean"]) for row in rows if "eval/return_mean" in row]
    return {
        "steps": result["step"],
        "stop_reason": result["stop_reason"],
        "warnings": list(result_warnings(run)),
        "training_seconds": round(sum(result["seconds"].values()), 3),
        "curve": {"steps": [step for step, _ in curve], "returns": [score for _, score in curve]},
        "date": metadata.get("created"),
        "git": metadata.get("git"),
        "versions": {"python": metadata.get("python"), **metadata.get("versions", {})},
    }


def replace_table(page: Path, name: str, table: str) -> None:
    """Put a table into a page, between the comments that mark its place."""
    before, after = place_of_table(page, name)
    write_bytes(page.expanduser(), f"{before}\n\n{table}\n\n{after}".encode())


def place_of_table(page: Path, name: str) -> tuple[str, str]:
    """Return what stands before and after the table in a page, with the comments that mark its place."""
    begin, end = f"<!-- table of the suite {name} -->", "<!-- end of the table -->"
    page = page.expanduser()
    try:
        text = page.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {page}: {error}") from None
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ConfigError(f"{page} has no place for the table: a line {begin}, and below it {end}")
    return before + begin, end + after
