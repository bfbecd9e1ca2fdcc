"""Runs that go on elsewhere, as their files show them. Reads only, takes no lock, and needs no torch.

A sweep has a status of each trial, which its process writes once a second. A run of `rl-training train` has
none: its metrics, its result and the holder of its lock say how far it is.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from rl_training.config import CheckpointError
from rl_training.runs.layout import CONFIG, MANIFEST
from rl_training.runs.lock import is_at_work, is_other_host, locks_held, read_holder
from rl_training.runs.tailing import ChangingFile
from rl_training.sweeps.board import TrialBoard
from rl_training.sweeps.directory import TRIALS, SweepDirectory, TrialRecord
from rl_training.sweeps.run_progress import RunProgress
from rl_training.sweeps.status import TrialStatus, read_status

Kind = Literal["sweep", "runs", "run"]
Locks = Set[tuple[int, int]] | None
STALE_SECONDS = 10.0  # without a word, after which the lock says if a process is still there
SILENT_SECONDS = 60.0  # without a word from another host, which is then shown
_MAX_WORDS = 300  # characters of a label, score or message from a file
_MAX_RUNS = 10_000


@dataclass(frozen=True)
class WatchedTrial:
    """One run as its files show it; `scores` are those of all evaluations so far."""

    name: str
    label: str
    run_dir: Path
    status: TrialStatus
    metric: str
    scores: tuple[float, ...]
    silent_for: float | None = None  # seconds, where nobody here can tell if the process lives


@dataclass(frozen=True)
class Sight:
    """Everything that is watched, at one moment."""

    path: Path
    kind: Kind
    trials: tuple[WatchedTrial, ...]
    has_driver: bool  # a process that may start more trials

    @property
    def goes_on(self) -> bool:
        return self.has_driver or any(
            trial.status.state in ("running", "starting") for trial in self.trials
        )

    @property
    def has_failed(self) -> bool:
        return any(trial.status.state == "failed" for trial in self.trials)

    def board(self) -> TrialBoard:
        """Put the states together; as many trials are expected side by side as run now."""
        board = TrialBoard({trial.name: trial.label for trial in self.trials})
        board.statuses = {trial.name: trial.status for trial in self.trials}
        board.jobs = max(1, board.count("running") + board.count("starting"))
        return board

    def messages(self) -> list[str]:
        """List warnings and then errors; one that many runs have is listed once."""
        runs: dict[tuple[str, str], list[str]] = {}
        for trial in self.trials:
            for text in trial.status.warnings:
                runs.setdefault(("warning", _short(text)), []).append(trial.label)
        for trial in self.trials:
            if trial.status.error:
                runs.setdefault(("error", _short(trial.status.error)), []).append(trial.label)
        return [
            f"{labels[0]}{f' and {len(labels) - 1} more' if len(labels) > 1 else ''}: {kind}: {text}"
            for (kind, text), labels in runs.items()
        ]

    def facts(self) -> dict[str, Any]:
        """Return everything as JSON."""
        board = self.board()
        states = [trial.status.state for trial in self.trials]
        return {
            "path": str(self.path),
            "kind": self.kind,
            "goes_on": self.goes_on,
            "counts": {state: states.count(state) for state in dict.fromkeys(states)},
            "seconds_left": board.seconds_left(),
            "trials": [_trial_facts(trial) for trial in self.trials],
        }


def _trial_facts(trial: WatchedTrial) -> dict[str, Any]:
    status = trial.status
    return {
        "run": str(trial.run_dir),
        "label": trial.label,
        "state": status.state,
        "step": status.step,
        "total": status.total,
        "updates_per_second": status.updates_per_second or None,
        "seconds_left": status.seconds_left,
        "metric": trial.metric or None,
        "scores": list(trial.scores),
        "stop_reason": status.stop_reason,
        "attempt": status.attempt,
        "error": status.error or None,
        "warnings": list(status.warnings),
        "host": status.host or None,
        "process": status.process or None,
        "silent_for": trial.silent_for,
    }


class Watcher:
    """Looks at a sweep, a directory of runs or one run; each look reads only what has changed."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser()
        self._files = SweepDirectory(self.path)
        self.kind: Kind = self._find_kind()
        if self.kind == "run":
            self._files = SweepDirectory(self.path.absolute().parent)
        self._records = ChangingFile(self._files.path / TRIALS, lambda _: self._files.records())
        self._statuses: dict[str, ChangingFile[TrialStatus]] = {}
        self._runs: dict[str, RunProgress] = {}

    def _find_kind(self) -> Kind:
        if not self.path.exists():
            raise CheckpointError(f"{self.path}: no such file or directory")
        if (self.path / CONFIG).is_file():
            return "run"
        if self._files.is_sweep:
            return "sweep"
        if (self.path / MANIFEST).is_file():
            raise CheckpointError(f"{self.path} is a checkpoint: give its run directory")
        if next(self.path.glob(f"*/{CONFIG}"), None) is not None:
            return "runs"
        sweep = next(self.path.glob(f"*/{TRIALS}"), None)
        if sweep is not None:
            raise CheckpointError(f"{self.path} holds sweeps: give one, such as {sweep.parent}")
        raise CheckpointError(f"{self.path} is no run and no sweep, and holds no runs")

    def look(self) -> Sight:
        """Read what has changed; a `CheckpointError` says if the list of trials is damaged."""
        locks, now = locks_held(), time.time()
        has_driver = self._files.is_sweep and is_at_work(self._files.path, locks)
        if self.kind == "runs":
            trials = _distinct([self._run(run, locks, now) for run in self._find_runs()])
        elif self.kind == "sweep":
            trials = [self._trial(each, locks, now, has_driver) for each in self._records.value()]
        else:
            record = self._record_of_run()
            trials = [
                self._run(self.path, locks, now)
                if record is None
                else self._trial(record, locks, now, has_driver)
            ]
        return Sight(self.path, self.kind, tuple(trials), self.kind == "sweep" and has_driver)

    def _record_of_run(self) -> TrialRecord | None:
        """Find the one run among the trials of the sweep that it lies in."""
        if not self._files.is_sweep:
            return None
        name = self.path.absolute().name
        return next((record for record in self._records.value() if record.name == name), None)

    def _find_runs(self) -> list[Path]:
        """List the runs by name; those that begin later come to light in a later look."""
        try:
            entries = sorted(self.path.iterdir())
        except OSError as error:
            raise CheckpointError(f"{self.path} cannot be read: {error.strerror}") from None
        return [run for run in entries if (run / CONFIG).is_file()][:_MAX_RUNS]

    def _progress(self, run_dir: Path) -> RunProgress:
        return self._runs.setdefault(run_dir.name, RunProgress(run_dir))

    def _run(self, run_dir: Path, locks: Locks, now: float) -> WatchedTrial:
        progress = self._progress(run_dir)
        status = progress.status(at_work=is_at_work(run_dir, locks))
        holder = read_holder(run_dir)
        if holder is not None:
            status = replace(status, host=holder.host, process=holder.process)
        name = run_dir.absolute().name
        return _seen(name, _short(progress.label or name), run_dir, status, progress, now)

    def _trial(
        self, record: TrialRecord, locks: Locks, now: float, has_driver: bool
    ) -> WatchedTrial:
        name, run_dir = record.name, self._files.run_dir(record.name)
        file = self._statuses.setdefault(
            name, ChangingFile(self._files.status_path(name), read_status)
        )
        progress = self._progress(run_dir)
        status = self._checked(name, file.value(), locks, now, has_driver)
        return _seen(name, _short(record.label) or name, run_dir, status, progress, now)

    def _checked(
        self, name: str, status: TrialStatus, locks: Locks, now: float, has_driver: bool
    ) -> TrialStatus:
        """Correct a status by what else is there: a result, or a lock that nobody holds any more."""
        if status.state == "waiting" and self._files.is_finished(name):
            return replace(status, state="ended")
        if status.state not in ("starting", "running") or now - status.updated < STALE_SECONDS:
            return status
        lives = is_at_work(self._files.run_dir(name), locks)
        if lives or (status.state == "starting" and has_driver):
            return status
        return replace(status, state="stopped")


def _seen(
    name: str, label: str, run_dir: Path, status: TrialStatus, progress: RunProgress, now: float
) -> WatchedTrial:
    metric, scores = progress.scores()
    silent = now - status.updated
    elsewhere = status.state == "running" and is_other_host(status.host)
    return WatchedTrial(
        name,
        label,
        run_dir,
        replace(status, score=_short(status.score), error=_short(status.error)),
        metric,
        scores,
        silent if elsewhere and silent > SILENT_SECONDS else None,
    )


def _distinct(trials: list[WatchedTrial]) -> list[WatchedTrial]:
    """Show runs by the names of their directories where others have the same label."""
    labels = Counter(trial.label for trial in trials)
    return [
        replace(trial, label=_short(trial.name)) if labels[trial.label] > 1 else trial
        for trial in trials
    ]


def _short(text: str) -> str:
    """Return the first line of a text from a file, not longer than a screen can show."""
    line = text.strip().split("\n")[0]
    return line if len(line) <= _MAX_WORDS else f"{line[:_MAX_WORDS]}..."
