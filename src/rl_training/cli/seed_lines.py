"""One live line for each seed on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

LINE_SECONDS = 10.0


class SeedLines:
    """Shows where each seed is: step, speed, last return, and how it ended."""

    def __init__(self, seeds: Sequence[int], *, quiet: bool = False) -> None:
        self._texts = dict.fromkeys(seeds, "waiting")
        self._shown = dict.fromkeys(seeds, 0.0)
        self._returns: dict[int, float | None] = dict.fromkeys(seeds)
        self._quiet = quiet
        self._live: Live | None = None

    def __enter__(self) -> SeedLines:
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, seed: int, message: Mapping[str, Any]) -> None:
        """Take a message of a seed's process."""
        if self._quiet:
            return
        self._texts[seed] = _text(message)
        if sys.stderr.isatty():
            if self._live is None:
                console = Console(file=sys.stderr)
                self._live = Live(console=console, get_renderable=self._table, transient=True)
                self._live.start()
            return
        due = time.perf_counter() - self._shown[seed] >= LINE_SECONDS
        scored = message.get("return") != self._returns[seed]
        if due or scored or message["state"] != "running":
            self._shown[seed] = time.perf_counter()
            self._returns[seed] = message.get("return", self._returns[seed])
            sys.stderr.write(f"seed {seed}  {self._texts[seed]}\n")
            sys.stderr.flush()

    def _table(self) -> Table:
        table = Table.grid(padding=(0, 2))
        for seed, text in self._texts.items():
            table.add_row(f"seed {seed}", text)
        return table


def _text(message: Mapping[str, Any]) -> str:
    if message["state"] == "failed":
        return f"failed: {message['error']}"
    if message["state"] == "ended":
        return f"stopped ({message['stop_reason']})"
    text = f"{message['step']}/{message['total']}  {message['updates_per_second']:.0f} updates/s"
    return text if message["return"] is None else f"{text}  return {message['return']:.1f}"
