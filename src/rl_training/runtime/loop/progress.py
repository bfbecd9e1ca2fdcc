"""Progress of a run: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from rl_training.config import lasting, visible
from rl_training.runtime.loop.callback import Callback

if TYPE_CHECKING:
    from rl_training.algorithms.base import Terms
    from rl_training.runtime.loop.state import TrainerState

REFRESH_SECONDS = 0.2
LINE_SECONDS = 10.0


class ProgressCallback(Callback):
    """Shows steps, updates per second, the last evaluation and the time left."""

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self.total = total
        self.stream = lasting(stream or sys.stderr)
        self.live = self.stream.isatty()
        self._bar: Progress | None = None
        self._shown = self._started = 0.0
        self._first_update = 0
        self._score = "-"

    def on_train_start(self, state: TrainerState) -> None:
        self._started = self._shown = time.perf_counter()
        self._first_update = state.update_count
        if self.live:
            self._bar = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn(
                    "{task.fields[rate]:.0f} updates/s  return {task.fields[score]}", markup=False
                ),
                TimeRemainingColumn(),
                console=Console(file=self.stream),
                transient=True,
            )
            self._bar.start()
            self._bar.add_task(
                visible(state.algorithm.name),
                total=self.total,
                completed=state.global_step,
                rate=0.0,
                score="-",
            )

    def on_collect_end(self, state: TrainerState, env_steps: int) -> None:
        self._tick(state)

    def on_update_end(self, state: TrainerState, terms: Terms) -> None:
        self._tick(state)

    def on_eval_end(self, state: TrainerState, metrics: Mapping[str, float]) -> None:
        self._score = f"{metrics['eval/return_mean']:.1f}"
        if self._bar is None:
            spread = metrics["eval/return_std"]
            self._line(state, f"return {self._score} ± {spread:.1f}")

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
            self._line(state, f"{self._rate(state):.0f} updates/s")
        else:
            self._bar.update(
                self._bar.task_ids[0],
                completed=state.global_step,
                rate=self._rate(state),
                score=self._score,
            )

    def _rate(self, state: TrainerState) -> float:
        elapsed = time.perf_counter() - self._started
        return (state.update_count - self._first_update) / max(elapsed, 1e-9)

    def _line(self, state: TrainerState, text: str) -> None:
        line = f"{state.algorithm.name} {state.global_step}/{self.total}  {text}"
        self.stream.write(f"{visible(line)}\n")
        self.stream.flush()
