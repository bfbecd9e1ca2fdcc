"""A guard for those who go on online with a policy that is already of use."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rl_training.runtime.callbacks import Callback

if TYPE_CHECKING:
    from rl_training.runtime.trainer import TrainerState

log = logging.getLogger("rl_training")


class RollbackCallback(Callback):
    """Returns to the last good policy and stops when an online score falls too far.

    The first score online, which is the offline policy's, is what later ones are compared with.
    """

    def __init__(self, drop: float, return_to: Callable[[int], None]) -> None:
        self.drop, self.return_to = drop, return_to
        self.offline_score: float | None = None
        self.good_step: int | None = None

    def on_train_start(self, state: TrainerState) -> None:
        state.good_step = self.good_step

    def on_eval_end(self, state: TrainerState, metrics: Mapping[str, float]) -> None:
        if state.phase != "online":
            return
        score = metrics["eval/return_mean"]
        if self.offline_score is None:
            self.offline_score = score
        least = self.offline_score - self.drop * abs(self.offline_score)
        if score >= least or self.good_step is None:
            self.good_step = state.good_step = state.global_step
            return
        self.return_to(self.good_step)
        reason = (
            f"rollback: the score fell to {score:.4g}, below {least:.4g} (offline "
            f"{self.offline_score:.4g}); the policy is that of step {self.good_step}"
        )
        if state.should_stop:  # at the end, for another reason, which is kept
            log.warning("%s", reason)
        state.request_stop(reason)

    def state_dict(self) -> dict[str, Any]:
        return {"offline_score": self.offline_score, "good_step": self.good_step}

    def load_state_dict(self, values: dict[str, Any]) -> None:
        self.offline_score, self.good_step = values["offline_score"], values["good_step"]
