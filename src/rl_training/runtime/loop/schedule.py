"""Learning-rate schedules, applied before every update."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rl_training.algorithms.base import Terms
from rl_training.runtime.config.schedules import ScheduleConfig, factor
from rl_training.runtime.loop.callback import Callback
from rl_training.runtime.loop.saved_values import whole
from rl_training.runtime.loop.state import TrainerState


class ScheduleCallback(Callback):
    """Sets each network's learning rate for the next update."""

    def __init__(
        self, schedules: Mapping[str, ScheduleConfig], *, warmup_steps: int, total: int
    ) -> None:
        self.schedules = schedules  # by network; `*` stands for all others
        self.warmup_steps = warmup_steps
        self.total = total  # the run's first total: a longer resume does not bend the curve

    def on_train_start(self, state: TrainerState) -> None:
        self._apply(state)

    def on_collect_end(self, state: TrainerState, env_steps: int) -> None:
        self._apply(state)

    def on_update_end(self, state: TrainerState, terms: Terms) -> None:
        self._apply(state)

    def state_dict(self) -> dict[str, Any]:
        return {"total": self.total}

    def load_state_dict(self, values: dict[str, Any]) -> None:
        self.total = whole(values["total"])

    def _apply(self, state: TrainerState) -> None:
        for network in state.algorithm.losses:
            schedule = self.schedules.get(network, self.schedules.get("*"))
            state.algorithm.set_learning_rate_factor(
                network,
                factor(
                    schedule or ScheduleConfig(),
                    state.global_step,
                    total=self.total,
                    warmup_steps=self.warmup_steps,
                ),
            )
