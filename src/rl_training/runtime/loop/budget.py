"""Budgets: environment steps or updates in total, gradient updates, passes over the dataset."""

from __future__ import annotations

from dataclasses import dataclass

from rl_training.algorithms.base import Terms
from rl_training.runtime.config.controls import ControlsConfig
from rl_training.runtime.loop import stop_reasons
from rl_training.runtime.loop.callback import Callback
from rl_training.runtime.loop.state import TrainerState


@dataclass(frozen=True)
class Budget:
    """Limits of a run; the first one reached ends it."""

    total: int  # in units of `global_step`
    max_updates: int | None = None
    max_epochs: int | None = None

    @classmethod
    def of(cls, controls: ControlsConfig, total: int) -> Budget:
        return cls(total, controls.max_updates, controls.max_epochs)

    def spent(self, state: TrainerState) -> str | None:
        """Name the limit that is reached, if any."""
        if state.global_step >= self.total and not state.mid_step:
            return stop_reasons.TOTAL_TIMESTEPS
        if self.max_updates is not None and state.update_count >= self.max_updates:
            return stop_reasons.MAX_UPDATES
        if self.max_epochs is not None and state.epoch >= self.max_epochs:
            return stop_reasons.MAX_EPOCHS
        return None


class BudgetCallback(Callback):
    """Ends the run at the first limit reached."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget

    def on_train_start(self, state: TrainerState) -> None:
        self._check(state)

    def on_collect_end(self, state: TrainerState, env_steps: int) -> None:
        self._check(state)

    def on_update_end(self, state: TrainerState, terms: Terms) -> None:
        self._check(state)

    def _check(self, state: TrainerState) -> None:
        reason = self.budget.spent(state)
        if reason is not None:
            state.request_stop(reason)
