"""Times at which checkpoints are written, and the choice of the best one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from rl_training.algorithms.base import Terms
from rl_training.runtime.checkpoints.store import Checkpoints
from rl_training.runtime.loop.callback import Callback, Interval
from rl_training.runtime.loop.early_stopping import is_better
from rl_training.runtime.loop.saved_values import number_or_none, whole, whole_or_none
from rl_training.runtime.loop.state import TrainerState


class CheckpointCallback(Callback):
    """Saves at every interval, at every new best evaluation and at the end; runs last in a tick.

    There is no best one where the `metric` is not measured.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        interval: int,
        metric: str = "eval/return_mean",
        mode: Literal["max", "min"] = "max",
    ) -> None:
        self.checkpoints = checkpoints
        self.metric, self.mode = metric, mode
        self.interval = Interval(interval)
        self.best: float | None = None
        self._scored = False  # an evaluation has come since the last save

    def on_train_start(self, state: TrainerState) -> None:
        self.interval.start(state)
        checkpoints, step = self.checkpoints, state.global_step
        with state.spans("checkpoint"):
            wanted = state.should_stop or (self._scored and checkpoints.lacks_pinned())
            if wanted and not checkpoints.has(step):
                checkpoints.save(step)  # stopped or scored before the first tick
            if "best" in checkpoints.pinned and not checkpoints.has(checkpoints.pinned["best"]):
                # a copy without the rest of its run: the best starts anew
                self.best = None
                del checkpoints.pinned["best"]
            checkpoints.point_best()
        self._scored = False

    def on_collect_end(self, state: TrainerState, env_steps: int) -> None:
        self._tick(state)

    def on_update_end(self, state: TrainerState, terms: Terms) -> None:
        self._tick(state)

    def on_eval_end(self, state: TrainerState, metrics: Mapping[str, float]) -> None:
        value = metrics.get(self.metric)
        if value is not None and is_better(value, self.best, self.mode):
            self.best = value
            self.checkpoints.pinned["best"] = state.global_step
        self._scored = True

    def on_train_end(self, state: TrainerState) -> None:
        """Save a policy rolled back by the final evaluation, whose score may also be the best."""
        with state.spans("checkpoint"):
            if self.checkpoints.outdated:
                self.checkpoints.save(state.global_step)
            self.checkpoints.point_best()

    def state_dict(self) -> dict[str, Any]:
        return {
            "best": self.best,
            "metric": self.metric,
            "best_step": self.checkpoints.pinned.get("best"),
            "looked_at": self.interval.last,
        }

    def load_state_dict(self, values: dict[str, Any]) -> None:
        self.interval.last = whole_or_none(values.get("looked_at"))
        if values.get("metric", "eval/return_mean") != self.metric:
            return  # by an earlier version, which looked at the return alone: the best starts anew
        self.best = number_or_none(values["best"])
        if values["best_step"] is not None:
            self.checkpoints.pinned["best"] = whole(values["best_step"])

    def _tick(self, state: TrainerState) -> None:
        due = self.interval.crossed(state) or state.should_stop
        if due or self._scored:
            with state.spans("checkpoint"):
                if due or self.checkpoints.lacks_pinned():
                    self.checkpoints.save(state.global_step)
                self.checkpoints.point_best()
                self.checkpoints.prune()
            self._scored = False
