"""Directory of a sweep: its description, its trials, what they are doing. Needs no torch.

<directory>/
sweep.yaml           the description, as it was given
trials.json          every trial: name, configuration, what differs
trials/<name>.json   status, written by the trial's process
trials/<name>.log    what the process printed
<name>/              an ordinary run directory
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rl_training.config import CheckpointError, OutputError, dump_yaml
from rl_training.files import read_json, write_bytes, write_json
from rl_training.runs.layout import RESULT, check_output_dir, disk_errors_named
from rl_training.runs.lock import RunLock, RunLockedError
from rl_training.runs.search_record import is_search
from rl_training.sweeps.status import TrialStatus, read_status

DESCRIPTION = "sweep.yaml"
TRIALS = "trials.json"
STATUSES = "trials"
SCHEMA = 1


@dataclass(frozen=True)
class TrialRecord:
    """One trial as `trials.json` lists it."""

    name: str
    label: str  # what differs, in words
    differs: Mapping[str, Any]
    config: Mapping[str, Any]

    @property
    def seed(self) -> int:
        return int(self.config.get("seed", 0))


@dataclass(frozen=True)
class SweepDirectory:
    """Paths inside the directory of a sweep, and its files."""

    path: Path
    notes: Path | None = None  # where statuses and logs lie, if not inside

    def run_dir(self, name: str) -> Path:
        return self.path / name

    def status_path(self, name: str) -> Path:
        return self.statuses / f"{name}.json"

    def log_path(self, name: str) -> Path:
        return self.statuses / f"{name}.log"

    @property
    def statuses(self) -> Path:
        return self.path / STATUSES if self.notes is None else self.notes

    def status(self, name: str) -> TrialStatus:
        return read_status(self.status_path(name))

    def known_status(self, name: str) -> TrialStatus:
        """Return the status of a trial that no process works on: it has ended, or waits to go on."""
        status = self.status(name)
        if self.is_finished(name):
            return replace(status, state="ended")
        return replace(status, state="waiting", attempt=0, error="")

    def is_finished(self, name: str) -> bool:
        return (self.run_dir(name) / RESULT).is_file()

    @property
    def is_sweep(self) -> bool:
        return (self.path / TRIALS).is_file()

    def create(self) -> None:
        """Make the directory, or use it if it is empty or holds a sweep already."""
        check_output_dir(self.path)
        self.refuse_search()
        if self.path.is_dir() and not self.is_sweep and self._holds_something_else():
            raise OutputError(
                f"{self.path} holds something else than a sweep: choose another --output-dir"
            )
        try:
            (self.path / STATUSES).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"cannot create {self.path / STATUSES}: {error.strerror}") from None

    def _holds_something_else(self) -> bool:
        """Tell if there is more than a process leaves that is killed while it makes the directory."""
        return any(
            entry.name != STATUSES and not entry.name.startswith(".")
            for entry in self.path.iterdir()
        )

    def refuse_search(self) -> None:
        """Refuse a directory whose trials a search makes as it goes."""
        if is_search(self.path):
            raise OutputError(
                f"{self.path} holds a search: go on with it by `rl-training tune resume {self.path}`"
            )

    def lock(self) -> RunLock:
        """Lock the sweep: one driver at a time."""
        try:
            return RunLock(self.path)
        except RunLockedError as error:
            raise RunLockedError(
                str(error).replace("is being trained by", "is being run by")
            ) from None

    def write(self, description: Mapping[str, Any], records: Iterable[TrialRecord]) -> None:
        """Write what the sweep is; statuses and runs that are there already stay."""
        trials = [
            {"name": r.name, "label": r.label, "differs": dict(r.differs), "config": dict(r.config)}
            for r in records
        ]
        with disk_errors_named(self.path):
            if description:
                write_bytes(self.path / DESCRIPTION, dump_yaml(description).encode())
            write_json(self.path / TRIALS, {"schema": SCHEMA, "trials": trials})

    def records(self) -> list[TrialRecord]:
        """Read the trials; a `CheckpointError` says what is wrong with the file."""
        path = self.path / TRIALS
        try:
            values = read_json(path)
        except FileNotFoundError:
            raise CheckpointError(f"{self.path} is no sweep: it has no {TRIALS}") from None
        except OSError as error:
            raise CheckpointError(f"{path} cannot be read: {error.strerror}") from None
        except ValueError:
            raise CheckpointError(f"{path} is damaged: it is not JSON") from None
        entries = values.get("trials") if isinstance(values, dict) else None
        if not isinstance(entries, list) or not all(map(_is_record, entries)):
            raise CheckpointError(f"{path} is damaged: it does not list trials")
        return [TrialRecord(e["name"], e["label"], e["differs"], e["config"]) for e in entries]


def _is_record(entry: Any) -> bool:
    if not isinstance(entry, dict):
        return False
    name = entry.get("name")
    return (
        isinstance(name, str)
        and Path(name).name == name  # it names a directory inside this one
        and name not in ("", "..")
        and len(name) < 200  # bytes of a file name are limited
        and name.isprintable()
        and isinstance(entry.get("label"), str)
        and isinstance(entry.get("differs"), dict)
        and isinstance(entry.get("config"), dict)
        and type(entry["config"].get("seed", 0)) is int
    )
