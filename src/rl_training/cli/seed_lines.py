"""One live line for each seed on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rl_training.cli.console import note
from rl_training.config import lasting, visible

LINE_SECONDS = 10.0


class SeedLines:
    """Shows where each seed is: step, speed, last return, and how it ended."""

    def __init__(self, seeds: Sequence[int], *, quiet: bool = False) -> None:
        self._texts = dict.fromkeys(seeds, "waiting")
        self._shown = dict.fromkeys(seeds, 0.0)
        self._quiet = quiet
        self._live: Live | None = None

    def __enter__(self) -> SeedLines:
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, seed: int, message: Mapping[str, Any]) -> None:
        """Take a message of a seed's process."""
        if message["state"] in ("note", "warning"):
            self._write(f"seed {seed}  {message['state']}: {message['text']}")
            return
        if self._quiet:
            return
        if message["state"] == "created":
            self._write(f"seed {seed}  run {message['run_dir']}")
            return
        self._texts[seed] = _text(message)
        is_live = sys.stderr.isatty()
        if is_live:
            self._start_live()
        due = message["state"] != "running" or (
            time.perf_counter() - self._shown[seed] >= LINE_SECONDS
        )
        # live lines show all but evaluations that are past
        if message.get("evaluated") or (due and not is_live):
            self._shown[seed] = time.perf_counter()
            self._write(f"seed {seed}  {self._texts[seed]}")

    def _start_live(self) -> None:
        if self._live is None:
            console = Console(file=lasting(sys.stderr))
            self._live = Live(console=console, get_renderable=self._table, transient=True)
            self._live.start()

    def _write(self, line: str) -> None:
        if self._live is not None:
            self._live.console.print(Text(visible(line)), soft_wrap=True)  # above the live lines
            return
        note(line)

    def _table(self) -> Table:
        table = Table.grid(padding=(0, 2))
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True, overflow="ellipsis")
        for seed, text in self._texts.items():
            table.add_row(f"seed {seed}", Text(visible(text)))
        return table


def _text(message: Mapping[str, Any]) -> str:
    state = message["state"]
    if state == "starting":
        return state
    if state == "failed":
        return "failed: " + message["error"].split("\n")[0]
    if state == "ended":
        text = f"stopped ({message['stop_reason']})"
    else:
        rate = message["updates_per_second"]
        text = f"{message['step']}/{message['total']}  {rate:.0f} updates/s"
    return f"{text}  {message['score']}".rstrip()
