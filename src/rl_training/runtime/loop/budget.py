"""Budgets: environment steps or updates in total, gradient updates, passes over the dataset."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass

from rl_training.algorithms.base import Terms
from rl_training.runtime.config.controls import ControlsConfig
from rl_training.runtime.config.train_config import TrainConfig
from rl_training.runtime.loop import stop_reasons
from rl_training.runtime.loop.callback import Callback
from rl_training.runtime.loop.state import TrainerState

log = logging.getLogger("rl_training")


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


def note_last_round(config: TrainConfig) -> None:
    """Say where `max_updates` ends a run whose updates come in rounds, if not exactly there.

    The policy learns at the end of a round. A round that is cut and resumed would update it twice, and
    be another run than an uninterrupted one.
    """
    limit = config.groups.controls.max_updates
    if limit is None or not config.spec.algorithm.joint_updates:
        return
    size, pretrained = config.groups.replay.gradient_updates_per_step, 0
    if config.regime == "offline_to_online":
        pretrained = config.groups.offline_to_online.offline_pretrain_updates
    if limit <= pretrained:  # the last round before collecting may be a short one
        end = min(math.ceil(limit / size) * size, pretrained)
    else:
        end = pretrained + math.ceil((limit - pretrained) / size) * size
    if end > limit:
        log.info(
            "max_updates is %d, but %s updates in rounds of %d, which are not cut: the run ends after %d",
            limit, config.algo, size, end,
        )  # fmt: skip
