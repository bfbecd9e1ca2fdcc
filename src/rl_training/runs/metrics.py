"""Rows of metrics on their way to all sinks, and the way to add one from outside the package.

A row is a mapping with `step`, `updates`, `epoch` and metrics such as `train/critic_loss` or
`eval/return_mean`. A logger for Weights & Biases, as a plugin (`--plugin wandb_logger.py`):

    import wandb
    from rl_training.runs.metrics import Sink, register_logger

    class WandbSink(Sink):
        def __init__(self, run_dir):
            self.run = wandb.init(project="rl", name=run_dir.name, id=run_dir.name, resume="allow")

        def write(self, row):
            self.run.log(dict(row), step=row["step"])

        def close(self):
            self.run.finish()

    register_logger("wandb", WandbSink)
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rl_training.runs.layout import EVALUATIONS, METRICS, PROGRESS, TENSORBOARD
from rl_training.runs.reading import latest_metrics, read_rows
from rl_training.runs.sinks import CsvSink, EpisodesSink, JsonlSink, Row, Sink, tensorboard_sinks

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["MetricsWriter", "Sink", "register_logger"]

ENTRY_POINT_GROUP = "rl_training.loggers"
_LOGGERS: dict[str, Callable[[Path], Sink]] = {}


def register_logger(name: str, factory: Callable[[Path], Sink]) -> None:
    """Send the rows of every run of this process also to `factory(run_dir)`.

    The same name replaces an earlier registration. Packages announce theirs by an entry point of
    the group `rl_training.loggers`, a module that calls this function.
    """
    _LOGGERS[name] = factory


class MetricsWriter:
    """Hands every row to every sink; can be cut back to the length it had at a checkpoint."""

    def __init__(self, run_dir: Path, tensorboard: bool | Literal["auto"] = "auto") -> None:
        self.run_dir = run_dir
        self.latest: dict[str, float] = {}
        self._jsonl = JsonlSink(run_dir / METRICS)
        self.sinks: list[Sink] = [
            self._jsonl,
            CsvSink(run_dir / PROGRESS),
            EpisodesSink(run_dir / EVALUATIONS),
            *tensorboard_sinks(run_dir / TENSORBOARD, tensorboard),
            *(factory(run_dir) for factory in _registered().values()),
        ]

    def write(self, row: Row) -> None:
        self.latest |= latest_metrics([row])
        for sink in self.sinks:
            sink.write(row)

    def write_episodes(self, step: int, returns: NDArray[Any], lengths: NDArray[Any]) -> None:
        for sink in self.sinks:
            sink.write_episodes(step, returns, lengths)

    def position(self) -> int:
        """Size of `metrics.jsonl` in bytes, once they are on disk; a checkpoint holds it."""
        return self._jsonl.position()

    def cut_back(self, position: int, step: int) -> None:
        """Forget what was written after the checkpoint at `step`, which holds `position`."""
        self._jsonl.truncate(position)
        rows = read_rows(self._jsonl.path)
        self.latest = latest_metrics(rows)
        for sink in self.sinks:
            sink.cut_back(rows, step)

    def close(self) -> None:
        for sink in self.sinks:
            sink.close()


def _registered() -> dict[str, Callable[[Path], Sink]]:
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        entry.load()
    return _LOGGERS
