"""Directory of a search: that of a sweep whose trials grow round by round, and the record of the search. Needs no torch.

<directory>/
tune.json            settings, trials, end: the only file that decides anything
trials.json          every run so far, as of a sweep
trials/              statuses and logs of the runs
<name>/              ordinary run directories
best.yaml            the best configuration, to run
optuna.journal       every trial, for Optuna's tools; it is written only
ope/                 fits of the metric ope/fqe
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rl_training.config import OutputError
from rl_training.files import write_bytes
from rl_training.runs.layout import check_output_dir
from rl_training.runs.search_record import BEST, JOURNAL, SearchRecord, is_search, read_search
from rl_training.sweeps.directory import STATUSES, SweepDirectory, TrialRecord


@dataclass(frozen=True)
class SearchDirectory:
    """Paths inside the directory of a search, and its files."""

    path: Path

    @property
    def sweep(self) -> SweepDirectory:
        """Return the same directory as that of a sweep."""
        return SweepDirectory(self.path)

    @property
    def journal(self) -> Path:
        return self.path / JOURNAL

    @property
    def best(self) -> Path:
        return self.path / BEST

    @property
    def is_search(self) -> bool:
        return is_search(self.path)

    def create(self) -> None:
        """Make the directory, or use it if it is empty or holds a search already."""
        check_output_dir(self.path)
        if self.path.is_dir() and not self.is_search and self._holds_something():
            raise OutputError(
                f"{self.path} holds something else than a search: choose another --output-dir"
            )
        try:
            (self.path / STATUSES).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"cannot create {self.path / STATUSES}: {error.strerror}") from None

    def _holds_something(self) -> bool:
        """Tell if there is more than what a search leaves that was killed before it wrote its record."""
        return any(
            entry.name != STATUSES and not entry.name.startswith(".")
            for entry in self.path.iterdir()
        )

    def read(self) -> SearchRecord:
        return read_search(self.path)

    def write(self, record: SearchRecord) -> None:
        record.write(self.path)

    def list_runs(self, runs: Iterable[TrialRecord]) -> None:
        """List the runs for whoever watches; the search itself does not read the list."""
        self.sweep.write({}, runs)

    def write_best(self, text: str) -> None:
        write_bytes(self.best, text.encode())
