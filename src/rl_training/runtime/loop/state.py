"""Position of a run: the counters that callbacks read, and the request to stop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, SupportsFloat

from rl_training.runtime.loop.stop_reasons import INTERRUPTED
from rl_training.runtime.loop.timing import Spans


@dataclass
class TrainerState:
    """Position of a run. The trainer writes it; callbacks read it and may request a stop."""

    algorithm: Any  # the learner
    run_dir: Path | None = None
    global_step: int = 0  # gradient updates while offline, environment steps while collecting
    epoch: int = 0  # passes over the dataset
    update_count: int = 0
    phase: str = "offline"  # or "online", once it collects
    mid_step: bool = False  # updates that belong to the last environment step are still to come
    should_stop: bool = False
    stop_reason: str | None = None
    spans: Spans = field(default_factory=Spans)  # seconds by activity
    write_metrics: Callable[[dict[str, float]], None] | None = None  # set by the run

    def log(self, metrics: Mapping[str, SupportsFloat]) -> None:
        """Write metrics of a callback as a row of this step: to all files, TensorBoard and loggers.

        A name without a group, such as `kl`, becomes `user/kl`.
        """
        row = {}
        for name, value in metrics.items():
            if not isinstance(name, str):
                raise TypeError(f"state.log: the name of a metric must be text, got {name!r}")
            try:
                row[name if "/" in name else f"user/{name}"] = float(value)
            except (TypeError, ValueError):
                raise TypeError(f"state.log: {name!r} must be one number, got {value!r}") from None
        if self.write_metrics is not None:
            self.write_metrics(row)

    def request_stop(self, reason: str) -> None:
        """End the run at this tick; the first reason is kept."""
        if not self.should_stop:
            self.should_stop, self.stop_reason = True, reason

    def interrupt(self) -> None:
        """End the run at once, as one that has more to do, whatever else had ended it."""
        self.should_stop, self.stop_reason = True, INTERRUPTED

    def clear_stop(self) -> None:
        """Let a run that was stopped go on."""
        self.should_stop, self.stop_reason = False, None

    def progress(self) -> dict[str, Any]:
        """Return the counters that a checkpoint keeps."""
        return {
            "global_step": self.global_step,
            "epoch": self.epoch,
            "update_count": self.update_count,
            "should_stop": self.should_stop,
            "stop_reason": self.stop_reason,
        }

    def load_progress(self, values: Mapping[str, Any]) -> None:
        """Take the counters back from a checkpoint."""
        for key in self.progress():
            if key in values:
                setattr(self, key, values[key])


@dataclass(frozen=True)
class TrainResult:
    """Files and final metrics of a finished run."""

    run_dir: Path
    checkpoint_path: Path
    metrics: dict[str, float] = field(default_factory=dict)
    stop_reason: str | None = None
    warnings: tuple[str, ...] = ()  # of learning that went wrong, with what to try
