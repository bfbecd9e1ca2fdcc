"""Progress of a run: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn
from rich.table import Column
from rich.text import Text

from rl_training.config import lasting, visible
from rl_training.runs.durations import duration
from rl_training.runtime.config.controls import VALIDATION_METRICS
from rl_training.runtime.loop.callback import Callback

if TYPE_CHECKING:
    from rl_training.algorithms.base import Terms
    from rl_training.runtime.loop.state import TrainerState

REFRESH_SECONDS = 0.2
LINE_SECONDS = 10.0
SMALLEST_BAR = 10  # columns


def fit(parts: list[str], width: int) -> str:
    """Join as many of the parts, the most important first, as fit into the width."""
    line = parts[0]
    for part in parts[1:]:
        if len(line) + 2 + len(part) <= width:
            line += f"  {part}"
    return line[: max(width, 0)]


def score_of(metrics: Mapping[str, float], watched: str = "") -> str:
    """Name the score of an evaluation: its return, else the watched or first validation metric."""
    if "eval/return_mean" in metrics:
        return f"return {metrics['eval/return_mean']:.1f}"
    for name in (watched, *VALIDATION_METRICS):
        if name in metrics:
            return f"{name} {metrics[name]:.4g}"
    return ""


class ProgressCallback(Callback):
    """Shows the run directory, steps, updates per second, evaluations and the time left.

    `watched` is the validation metric that is shown where no environment gives a score.
    """

    def __init__(self, total: int, stream: TextIO | None = None, watched: str = "") -> None:
        self.total, self.watched = total, watched
        self.stream = lasting(stream or sys.stderr)
        self.live = self.stream.isatty()
        self._bar: Progress | None = None
        self._shown = self._started = 0.0
        self._first_update = 0
        self._score = ""

    def on_train_start(self, state: TrainerState) -> None:
        self._started = self._shown = time.perf_counter()
        self._first_update = state.update_count
        self._write(f"run {state.run_dir}")
        if self.live:
            self._bar = Progress(console=Console(file=self.stream), transient=True, expand=True)
            self._bar.add_task("", total=self.total)
            self._refresh(state)
            self._bar.start()

    def on_collect_end(self, state: TrainerState, env_steps: int) -> None:
        self._tick(state)

    def on_update_end(self, state: TrainerState, terms: Terms) -> None:
        self._tick(state)

    def on_eval_end(self, state: TrainerState, metrics: Mapping[str, float]) -> None:
        self._score = line = score_of(metrics, self.watched)
        if "eval/return_mean" in metrics:
            line += f" ± {metrics['eval/return_std']:.1f}"
            validation = {k: v for k, v in metrics.items() if k in VALIDATION_METRICS}
            line = "  ".join(filter(None, (line, score_of(validation, self.watched))))
        self._write(f"{self._position(state)}  {line}")

    def close(self) -> None:
        """Stop the bar, which shows the cursor again."""
        if self._bar is not None:
            self._bar.stop()

    def _tick(self, state: TrainerState) -> None:
        now = time.perf_counter()
        if now - self._shown < (REFRESH_SECONDS if self._bar else LINE_SECONDS):
            return
        self._shown = now
        if self._bar is None:
            self._write(f"{self._position(state)}  {self._rate(state)}")
        else:
            self._refresh(state)

    def _refresh(self, state: TrainerState) -> None:
        """Bring the bar up to date, in one line however narrow the terminal is."""
        assert self._bar is not None
        task = self._bar.task_ids[0]
        self._bar.update(task, completed=state.global_step)
        left = self._bar.tasks[0].time_remaining
        width = self._bar.console.width
        parts = [f"{state.global_step}/{self.total}", self._score, self._rate(state)]
        if left is not None:
            parts.append(f"{duration(left)} left")
        parts.append(visible(state.algorithm.name))
        text = fit([part for part in parts if part], width)
        columns: list[str | ProgressColumn] = [
            TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True))
        ]
        if width - len(text) - 1 >= SMALLEST_BAR:
            columns.append(BarColumn(bar_width=None, table_column=Column(ratio=1)))
        self._bar.columns = tuple(columns)
        self._bar.update(task, description=text)

    def _rate(self, state: TrainerState) -> str:
        elapsed = time.perf_counter() - self._started
        rate = (state.update_count - self._first_update) / max(elapsed, 1e-9)
        return f"{rate:.0f} updates/s"

    def _position(self, state: TrainerState) -> str:
        return f"{state.algorithm.name} {state.global_step}/{self.total}"

    def _write(self, line: str) -> None:
        """Write a line that stays, above the bar if there is one."""
        if self._bar is not None and self._bar.live.is_started:
            self._bar.console.print(Text(visible(line)), soft_wrap=True)
            return
        self.stream.write(f"{visible(line)}\n")
        self.stream.flush()
