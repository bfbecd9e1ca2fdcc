"""Rollback: a guard for fine-tuning a policy online that is already of use."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from rl_training.runtime.checkpoints.store import Checkpoints
from rl_training.runtime.loop.callback import Callback
from rl_training.runtime.loop.saved_values import number_or_none, whole
from rl_training.runtime.loop.state import TrainerState
from rl_training.runtime.policy import Policy

log = logging.getLogger("rl_training")


class RollbackCallback(Callback):
    """Returns to the last good policy and stops when an online score falls too far.

    Scores are compared with the first one online, which is that of the offline policy.
    """

    def __init__(self, drop: float, checkpoints: Checkpoints, policy: Policy) -> None:
        self.drop = drop  # share of the offline score's size
        self.checkpoints, self.policy = checkpoints, policy
        self.offline_score: float | None = None

    def on_eval_end(self, state: TrainerState, metrics: Mapping[str, float]) -> None:
        if state.phase != "online":
            return
        score = metrics["eval/return_mean"]
        if self.offline_score is None:
            self.offline_score = score
        least = self.offline_score - self.drop * abs(self.offline_score)
        good_step = self.checkpoints.pinned.get("good")
        if score >= least or good_step is None:
            self.checkpoints.pinned["good"] = state.global_step
            return
        self._return_to(good_step)
        reason = (
            f"rollback: the score fell to {score:.4g}, below {least:.4g} (offline "
            f"{self.offline_score:.4g}); the policy is that of step {good_step}"
        )
        if state.should_stop:  # at the end, for another reason, which is kept
            log.warning("%s", reason)
        state.request_stop(reason)

    def _return_to(self, step: int) -> None:
        self.policy.algorithm.load_networks(self.checkpoints.networks_at(step))
        self.policy.refresh()
        self.checkpoints.outdated = True

    def state_dict(self) -> dict[str, Any]:
        return {
            "offline_score": self.offline_score,
            "good_step": self.checkpoints.pinned.get("good"),
        }

    def load_state_dict(self, values: dict[str, Any]) -> None:
        self.offline_score = number_or_none(values["offline_score"])
        if values["good_step"] is not None:
            self.checkpoints.pinned["good"] = whole(values["good_step"])
