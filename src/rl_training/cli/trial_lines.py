"""Many runs at once: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rl_training import api
from rl_training.cli.console import note
from rl_training.config import lasting, visible

if TYPE_CHECKING:
    from rl_training.api import TrialStatus

LINE_SECONDS = 10.0  # between two plain lines of one trial, times the number that run
REFRESH_SECONDS = 1.0  # of the table
_ORDER = {
    "running": 0,
    "starting": 1,
    "failed": 2,
    "paused": 3,
    "interrupted": 4,
    "waiting": 5,
    "ended": 6,
}


class TrialLines:
    """Shows where each trial is: state, step, speed, last score, time left.

    `labels` say in words what each trial is.
    """

    def __init__(self, labels: Mapping[str, str], *, jobs: int = 1, quiet: bool = False) -> None:
        self._labels, self._quiet = dict(labels), quiet
        self._board = api.TrialBoard(labels, jobs=jobs)
        self._warned: set[str] = set()
        self._written: dict[str, float] = {}
        self._scores: dict[str, str] = {}
        self._refreshed = 0.0
        self._live: Live | None = None

    def __enter__(self) -> TrialLines:
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()

    def expect(self, labels: Mapping[str, str]) -> None:
        """Take trials that were not known when the display began."""
        for name, label in labels.items():
            self._labels.setdefault(name, label)
            self._board.labels.setdefault(name, label)
            self._board.statuses.setdefault(name, api.TrialStatus())

    def say(self, line: str) -> None:
        """Write a line of its own, unless the display is quiet."""
        if not self._quiet:
            self.write(line)

    def know(self, name: str, status: TrialStatus) -> None:
        """Take what is known of a trial before anything is started."""
        self._board.statuses[name] = status

    def show(self, name: str, status: TrialStatus) -> None:
        """Take the status of a trial that has changed."""
        label = self._labels[name]
        before = self._board.statuses[name]
        self._board.statuses[name] = status
        for text in status.warnings:
            if text not in self._warned:  # the same log makes every trial say the same
                self._warned.add(text)
                self.write(f"{label}  warning: {text}")
        if self._quiet:
            return
        has_scored = bool(status.score) and status.score != self._scores.get(name)
        if sys.stderr.isatty():
            self._refresh()
            if has_scored:
                self._scores[name] = status.score
        elif before.state != status.state or has_scored or self._is_due(name):
            self._scores[name] = status.score
            self._written[name] = time.monotonic()
            self.write(f"{label}  {api.trial_text(status)}")

    def _is_due(self, name: str) -> bool:
        pause = LINE_SECONDS * max(1, self._board.count("running"))
        return time.monotonic() - self._written.get(name, 0.0) >= pause

    def _refresh(self) -> None:
        if self._live is None:
            console = Console(file=lasting(sys.stderr))
            self._live = Live(console=console, transient=True, auto_refresh=False)
            self._live.start()
        if time.monotonic() - self._refreshed >= REFRESH_SECONDS:
            self._refreshed = time.monotonic()
            height = self._live.console.height
            width = self._live.console.width
            table = trial_table(self._board, rows=max(3, height - 4), width=width)
            self._live.update(table, refresh=True)

    def write(self, line: str) -> None:
        """Write a line that stays, above the table if there is one."""
        if self._live is not None:
            self._live.console.print(Text(visible(line)), soft_wrap=True)  # above the table
            return
        note(line)


def trial_table(board: api.TrialBoard, rows: int, width: int) -> Table:
    """Draw the trials that fit, what goes on first, and a line about all."""
    names = sorted(board.statuses, key=lambda name: _ORDER[board.statuses[name].state])[:rows]
    cells = {name: api.trial_cells(board.statuses[name]) for name in names}
    taken = sum(max((len(row[at]) for row in cells.values()), default=0) + 2 for at in range(5))
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, overflow="ellipsis", max_width=max(12, width - taken))
    for _ in range(5):
        table.add_column(no_wrap=True, overflow="ellipsis")
    for name in names:
        table.add_row(*(Text(visible(text)) for text in (board.labels[name], *cells[name])))
    lines = Table.grid()
    lines.add_row(table)
    lines.add_row(Text(board.summary(), no_wrap=True, overflow="ellipsis"))
    return lines
