"""`watch`: runs that go on elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rl_training import api
from rl_training.cli.console import JsonOption, say, say_json, say_table
from rl_training.cli.sparkline import sparkline
from rl_training.config import visible

REFRESH_SECONDS = 1.0
_CURVE = 16  # characters of the curve, on a terminal that is wide enough
_WIDE = 110  # columns
_MESSAGES = 5  # on a terminal
_HEADERS = ("run", "state", "step", "updates/s", "score", "curve", "end")
# what goes on comes first where not all fit
_ORDER = (
    "running", "starting", "failed", "stopped", "paused", "interrupted", "waiting", "ended",
)  # fmt: skip


def watch(
    path: Annotated[
        str,
        typer.Argument(
            metavar="DIR_OR_RUN", help="A sweep, a directory of runs, or one run directory."
        ),
    ],
    once: Annotated[
        bool, typer.Option("--once", help="Print one table and end, as without a terminal.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Show how far runs are that go on elsewhere; reads their files only."""
    watcher = api.Watcher(path)
    sight = watcher.look()
    if not (once or json) and sys.stdout.isatty() and sight.goes_on:
        sight = _follow(watcher, sight)
    if json:
        say_json(sight.facts())
    else:
        _say_sight(sight)
    if sight.has_failed:
        raise typer.Exit(1)


def _follow(watcher: api.Watcher, sight: api.Sight) -> api.Sight:
    """Show a table until nothing goes on any more."""
    console = Console(file=sys.stdout)
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while sight.goes_on:
            live.update(_screen(sight, console.width, console.height), refresh=True)
            time.sleep(REFRESH_SECONDS)
            sight = watcher.look()
    return sight


def _screen(sight: api.Sight, width: int, height: int) -> Group:
    """Draw what fits: a line about all, the runs, the last messages."""
    messages = sight.messages()[-min(_MESSAGES, max(0, height // 4)) :]
    room = max(1, height - len(messages) - 4)
    trials = sorted(sight.trials, key=lambda trial: _ORDER.index(trial.status.state))
    hidden = len(trials) - room
    if hidden > 0:
        trials, hidden = trials[: room - 1], hidden + 1
    lines = [Text(f"... and {hidden} more")] if hidden > 0 else []
    lines += [Text(visible(text), style="yellow") for text in messages]
    for line in lines:
        line.no_wrap, line.overflow = True, "ellipsis"
    return Group(Text(visible(_title(sight)), no_wrap=True), _table(trials, width), *lines)


def _table(trials: Sequence[api.WatchedTrial], width: int) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", expand=True)
    table.add_column(_HEADERS[0], no_wrap=True, overflow="ellipsis", ratio=1, min_width=10)
    for name in _HEADERS[1:]:
        table.add_column(name, no_wrap=True, overflow="ellipsis")
    for cells in _rows(trials, _CURVE if width >= _WIDE else _CURVE // 2):
        table.add_row(*(Text(visible(cell)) for cell in cells))
    return table


def _rows(trials: Sequence[api.WatchedTrial], curve: int) -> Iterator[tuple[str, ...]]:
    for trial in trials:
        state, step, speed, score, left = api.trial_cells(trial.status)
        if trial.silent_for is not None:
            left = f"no word for {api.duration(trial.silent_for)}"
        rate = speed.removesuffix(f" {_HEADERS[3]}")
        yield (trial.label, state, step, rate, score, sparkline(trial.scores, curve), left)


def _title(sight: api.Sight) -> str:
    return f"{sight.path}: {sight.board().summary()}"


def _say_sight(sight: api.Sight) -> None:
    say(_title(sight))
    say_table(_HEADERS, list(_rows(sight.trials, _CURVE)))
    for text in sight.messages():
        say(f"  {text}")
