"""Times at which checkpoints are written, and the choice of the best one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rl_training.algorithms.base import Terms
from rl_training.runtime.checkpoints.store import Checkpoints
from rl_training.runtime.loop.callback import Callback, Interval
from rl_training.runtime.loop.saved_values import number_or_none, whole, whole_or_none
from rl_training.runtime.loop.state import TrainerState


class CheckpointCallback(Callback):
    """Saves at every interval, at every new best evaluation and at the end; runs last in a tick."""

    def __init__(self, checkpoints: Checkpoints, interval: int) -> None:
        self.checkpoints = checkpoints
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
        value = metrics["eval/return_mean"]
        if self.best is None or value > self.best:
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
            "best_step": self.checkpoints.pinned.get("best"),
            "looked_at": self.interval.last,
        }

    def load_state_dict(self, values: dict[str, Any]) -> None:
        self.best = number_or_none(values["best"])
        self.interval.last = whole_or_none(values.get("looked_at"))
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
