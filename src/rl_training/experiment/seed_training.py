"""One seed in a process of its own: trains it, and sends JSON messages to the parent."""

from __future__ import annotations

import json
import logging
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from rl_training.algorithms.registry import load_plugin
from rl_training.config import RLTrainingError, RunError, without_colours
from rl_training.imports import forget_safe_path
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.commands import train
from rl_training.runtime.config.train_config import TrainConfig
from rl_training.runtime.loop.progress import score_of

if TYPE_CHECKING:
    from rl_training.algorithms.base import Terms
    from rl_training.runtime.trainer import TrainerState

SECONDS = 0.2  # between two messages of one seed
Send = Callable[[dict[str, Any]], None]


class ProgressMessages(Callback):
    """Sends step, speed and score to the parent process a few times a second."""

    def __init__(self, send: Send, total: int, watched: str = "") -> None:
        self._send, self._total, self._watched = send, total, watched
        self._sent = self._started = time.perf_counter()
        self._first_update = 0
        self._score = ""

    def on_train_start(self, state: TrainerState) -> None:
        self._started, self._first_update = time.perf_counter(), state.update_count
        self._send({"state": "created", "run_dir": str(state.run_dir)})
        self._send_progress(state)

    def on_collect_end(self, state: TrainerState, env_steps: int) -> None:
        self._tick(state)

    def on_update_end(self, state: TrainerState, terms: Terms) -> None:
        self._tick(state)

    def on_eval_end(self, state: TrainerState, metrics: Mapping[str, float]) -> None:
        self._score = score_of(metrics, self._watched)
        self._send_progress(state, evaluated=True)

    def _tick(self, state: TrainerState) -> None:
        if time.perf_counter() - self._sent >= SECONDS:
            self._send_progress(state)

    def _send_progress(self, state: TrainerState, *, evaluated: bool = False) -> None:
        self._sent = time.perf_counter()
        updates = state.update_count - self._first_update
        self._send(
            {
                "state": "running",
                "step": state.global_step,
                "total": self._total,
                "updates_per_second": updates / max(self._sent - self._started, 1e-9),
                "score": self._score,
                "evaluated": evaluated,
            }
        )


class _NoteMessages(logging.Handler):
    """Sends log records to the parent process, which knows where to show them."""

    def __init__(self, send: Send) -> None:
        super().__init__()
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        kind = "warning" if record.levelno >= logging.WARNING else "note"
        self._send({"state": kind, "text": record.getMessage()})


def train_seed(
    values: dict[str, Any],
    plugins: Sequence[str],
    messages: Connection,
    auto_resume: bool = False,
    debug: bool = False,
) -> None:
    """Train one configuration in this process; the last message says how it ended."""

    def send(message: dict[str, Any]) -> None:
        try:
            messages.send_bytes(json.dumps(message).encode())
        except OSError:  # the parent is gone: this run comes to its end all the same
            return

    forget_safe_path()
    _send_notes(send, debug)
    try:
        for plugin in plugins:
            load_plugin(plugin)
        config = TrainConfig(**values)
        watched, _ = config.groups.controls.best_metric()
        progress = ProgressMessages(send, config.budget, watched)
        result = train(config, callbacks=[progress], auto_resume=auto_resume)
    except Exception as error:
        expected = isinstance(error, RLTrainingError)
        text = f"{error}" if expected else f"{type(error).__name__}: {error}"
        is_user_error = expected and not isinstance(error, RunError)
        send({"state": "failed", "error": text, "is_user_error": is_user_error})
        return
    send(
        {
            "state": "ended",
            "run_dir": str(result.run_dir),
            "checkpoint_path": str(result.checkpoint_path),
            "metrics": result.metrics,
            "score": score_of(result.metrics, watched),
            "stop_reason": result.stop_reason,
            "warnings": list(result.warnings),
        }
    )


def _send_notes(send: Send, debug: bool) -> None:
    """Send warnings, and those of the package's log, instead of writing between the live lines."""

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        if issubclass(category, UserWarning):
            send({"state": "warning", "text": without_colours(str(message))})

    logger = logging.getLogger("rl_training")
    logger.setLevel(logging.DEBUG if debug else logging.WARNING)
    logger.addHandler(_NoteMessages(send))
    logger.propagate = False
    warnings.showwarning = show
