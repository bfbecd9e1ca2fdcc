"""Metrics on disk: `metrics.jsonl`, `progress.csv`, `evaluations.npz`, TensorBoard events."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import logging
import math
import os
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rl_training.config import MissingExtraError, RunError
from rl_training.files import write_bytes
from rl_training.runtime.loop.callback import Callback, Interval

if TYPE_CHECKING:
    from rl_training.algorithms.base import Terms
    from rl_training.runtime.evaluation.evaluator import Evaluation
    from rl_training.runtime.loop.state import Moment, TrainerState

log = logging.getLogger("rl_training")
FOLD = 128  # updates whose scalars are kept as tensors before they are added up


class MetricsWriter:
    """Appends rows; can be cut back to the length it had at a checkpoint."""

    def __init__(self, run_dir: Path, tensorboard: bool | None = None) -> None:
        self.run_dir = run_dir
        self.path = run_dir / "metrics.jsonl"
        self.latest: dict[str, float] = {}
        self._columns: list[str] = []
        self._events = _event_writer(run_dir / "tensorboard", tensorboard)

    def write(self, moment: Moment, metrics: dict[str, float]) -> None:
        row = {
            "step": moment.global_step,
            "updates": moment.update_count,
            "epoch": moment.epoch,
            **metrics,
        }
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        self.latest |= metrics
        self._write_csv(row)
        for name, value in metrics.items():
            self._events.add_scalar(name, value, moment.global_step)

    def write_evaluation(self, moment: Moment, evaluation: Evaluation) -> None:
        """Every episode of every evaluation: steps (n,), returns and lengths (n, episodes)."""
        path = self.run_dir / "evaluations.npz"
        rows = {
            "steps": np.array([moment.global_step]),
            "returns": evaluation.returns[None],
            "lengths": evaluation.lengths[None],
        }
        saved = _read_evaluations(path)
        if saved:
            before = saved["steps"] < moment.global_step
            rows = {key: np.concatenate([saved[key][before], rows[key]]) for key in rows}
        _write_npz(path, rows)

    def position(self) -> int:
        """Bytes written so far, and on disk for good."""
        if not self.path.exists():
            return 0
        with self.path.open("rb") as file:
            os.fsync(file.fileno())
            return file.seek(0, os.SEEK_END)

    def cut_back(self, position: int, step: int) -> None:
        """Forget what was written after a checkpoint at `step`."""
        if self.path.exists():
            os.truncate(self.path, min(position, self.path.stat().st_size))
        (self.run_dir / "progress.csv").unlink(missing_ok=True)
        self._columns, self.latest = [], read_latest(self.path)
        for row in _read_rows(self.path):
            self._write_csv(row)
        evaluations = self.run_dir / "evaluations.npz"
        saved = _read_evaluations(evaluations)
        if saved:
            _write_npz(evaluations, {key: saved[key][saved["steps"] <= step] for key in saved})

    def close(self) -> None:
        self._events.close()

    def _write_csv(self, row: dict[str, Any]) -> None:
        path = self.run_dir / "progress.csv"
        added = [key for key in row if key not in self._columns]
        if added:
            earlier = _read_csv(path)
            self._columns += added
            with path.open("w", newline="") as file:
                writer = csv.DictWriter(file, self._columns, restval="")
                writer.writeheader()
                writer.writerows(earlier)
        with path.open("a", newline="") as file:
            csv.DictWriter(file, self._columns, restval="").writerow(row)


def _read_rows(path: Path) -> list[dict[str, Any]]:
    """Rows of a metrics file; one that was cut off in the middle is left out."""
    rows = []
    for line in path.read_text(errors="replace").splitlines() if path.exists() else ():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return rows


def read_latest(path: Path) -> dict[str, float]:
    """The last value of every metric of a `metrics.jsonl`."""
    return {key: value for row in _read_rows(path) for key, value in row.items() if "/" in key}


def _read_evaluations(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        with np.load(path, allow_pickle=False) as saved:
            return {key: saved[key] for key in ("steps", "returns", "lengths")}
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile):
        log.warning("%s is damaged; evaluations before this point are lost", path)
        path.unlink()
        return {}


def _write_npz(path: Path, arrays: dict[str, Any]) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    write_bytes(path, buffer.getvalue())


def _read_csv(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


class _NoEvents:
    def add_scalar(self, name: str, value: float, step: int) -> None:
        """TensorBoard is off."""

    def close(self) -> None:
        """Nothing is open."""


def _event_writer(directory: Path, wanted: bool | None) -> Any:
    installed = importlib.util.find_spec("tensorboard") is not None
    if wanted and not installed:
        raise MissingExtraError("tensorboard: true", "TensorBoard", "tensorboard")
    if wanted is False or not installed:
        return _NoEvents()
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(directory))


class LoggingCallback(Callback):
    """Averages the losses since the last row and writes one when `log_interval` is crossed.

    Scalars stay tensors until they are added up, so the update loop never waits for one.
    """

    def __init__(
        self, writer: MetricsWriter, interval: int, report: Callable[[], dict[str, float]] = dict
    ) -> None:
        self.writer = writer
        self.report = report  # what the experience has to say
        self.interval = Interval(interval)
        self._pending: list[Terms] = []
        self._sums: dict[str, list[float]] = {}  # name: [sum, count]
        self._clock = (time.perf_counter(), 0, 0)
        self._row_step = 0

    def on_train_start(self, state: TrainerState) -> None:
        self.interval.last = state.global_step
        self._clock = (time.perf_counter(), state.update_count, state.global_step)

    def on_collect_end(self, state: TrainerState, env_steps: int) -> None:
        self._tick(state)

    def on_update_end(self, state: TrainerState, terms: Terms) -> None:
        self._pending.append(terms)
        if len(self._pending) >= FOLD:
            with state.spans("log"):
                self._fold()
        self._tick(state)

    def _tick(self, state: TrainerState) -> None:
        if self.interval.crossed(state):
            self._write(state)
            self._sums = {}

    def _write(self, state: TrainerState) -> None:
        with state.spans("log"):
            self.writer.write(state.moment(), self._averages(state))
        self._row_step = state.global_step

    def on_train_end(self, state: TrainerState) -> None:
        """The rest of an interval gets a row, too; a longer resume cuts it off again."""
        if state.global_step > self._row_step:
            self._write(state)

    def close(self) -> None:
        self.writer.close()

    def state_dict(self) -> dict[str, Any]:
        pending = [{key: value.item() for key, value in terms.items()} for terms in self._pending]
        for terms in pending:
            _refuse_divergence(terms)  # never save networks that have already blown up
        return {"sums": self._sums, "pending": pending, "row_step": self._row_step}

    def load_state_dict(self, values: dict[str, Any]) -> None:
        self._sums, self._row_step = values["sums"], values["row_step"]
        self._pending = [
            {key: torch.tensor(value) for key, value in terms.items()}
            for terms in values["pending"]
        ]

    def _averages(self, state: TrainerState) -> dict[str, float]:
        self._fold()
        then, updates_then, steps_then = self._clock
        now = time.perf_counter()
        self._clock = (now, state.update_count, state.global_step)
        seconds = max(now - then, 1e-9)
        return {
            **{f"train/{name}": total / count for name, (total, count) in self._sums.items()},
            **self.report(),
            "time/updates_per_second": (state.update_count - updates_then) / seconds,
            "time/steps_per_second": (state.global_step - steps_then) / seconds,
            **state.spans.row(),
        }

    def _fold(self) -> None:
        names = dict.fromkeys(name for terms in self._pending for name in terms)
        for name in names:
            values = torch.stack([terms[name] for terms in self._pending if name in terms]).double()
            if values.ndim > 1:
                shape = tuple(values.shape[1:])
                raise RunError(f"the term {name!r} is to be one number, but has shape {shape}")
            total, count = self._sums.get(name, [0.0, 0])
            self._sums[name] = [total + values.sum().item(), count + len(values)]
        self._pending = []
        _refuse_divergence({name: total for name, (total, _) in self._sums.items()})


def _refuse_divergence(values: dict[str, float]) -> None:
    for name, value in values.items():
        if not math.isfinite(value):
            raise RunError(
                f"training diverged: {name} is {value}; lower learning_rate or scale the rewards "
                "(reward_scale), then start again or resume from an earlier checkpoint"
            )
