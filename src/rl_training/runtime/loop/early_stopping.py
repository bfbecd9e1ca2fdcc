"""Early stopping on an evaluation metric."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from rl_training.config import RunError
from rl_training.runtime.config.controls import EarlyStoppingConfig, metric_key
from rl_training.runtime.loop.callback import Callback
from rl_training.runtime.loop.saved_values import number_or_none, whole
from rl_training.runtime.loop.state import TrainerState


def is_better(
    value: float, best: float | None, mode: Literal["max", "min"], by: float = 0.0
) -> bool:
    """Tell if a score improves the best so far by more than `by`; one that is no number never does."""
    if math.isnan(value):
        return False
    if best is None:
        return True
    return (value - best if mode == "max" else best - value) > by


class EarlyStoppingCallback(Callback):
    """Stops when the metric reached its target, or has not improved for `patience` evaluations."""

    def __init__(self, config: EarlyStoppingConfig) -> None:
        self.config = config
        self.best: float | None = None
        self.stale = 0  # evaluations since the last improvement
        self._had_target = False

    def on_train_start(self, state: TrainerState) -> None:
        """Give a run that goes on past its early stop fresh patience, and no second target stop."""
        self._had_target = self.best is not None and self._reached_target(self.best)
        if self.stale >= self.config.patience:
            self.stale = 0

    def on_eval_end(self, state: TrainerState, metrics: Mapping[str, float]) -> None:
        watched = metric_key(self.config.metric)
        if watched.startswith("train/") and not any(name.startswith("train/") for name in metrics):
            return  # the first row of losses is still to come
        value = self._value(metrics)
        may_stop = state.global_step >= self.config.min_steps
        if may_stop and self._reached_target(value) and not self._had_target:
            state.request_stop(
                f"early stopping: {self.config.metric} reached {self.config.target_value:g}"
            )
        if is_better(value, self.best, self.config.mode, self.config.min_delta):
            self.best, self.stale = value, 0
        else:
            self.stale += 1
        if may_stop and self.stale >= self.config.patience:
            state.request_stop(
                f"early stopping: {self.config.metric} has not improved for "
                f"{self.stale} evaluations (best {self.best})"
            )

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "stale": self.stale}

    def load_state_dict(self, values: dict[str, Any]) -> None:
        self.best, self.stale = number_or_none(values["best"]), whole(values["stale"])

    def _value(self, metrics: Mapping[str, float]) -> float:
        by_key = {metric_key(name): value for name, value in metrics.items()}
        if metric_key(self.config.metric) not in by_key:
            measured = ", ".join(sorted(by_key))
            raise RunError(
                f"early_stopping.metric {self.config.metric!r} is not measured "
                f"(measured: {measured})"
            )
        return by_key[metric_key(self.config.metric)]

    def _reached_target(self, value: float) -> bool:
        target = self.config.target_value
        if target is None:
            return False
        return value >= target if self.config.mode == "max" else value <= target
