"""Warnings about learning that goes wrong although nothing fails, each with what to try."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

from rl_training.data.data_facts import DataFacts
from rl_training.runtime.loop.callback import Callback
from rl_training.runtime.loop.saved_values import number
from rl_training.runtime.loop.state import TrainerState
from rl_training.runtime.loop.stop_reasons import INTERRUPTED

log = logging.getLogger("rl_training")

CAPPED_SHARE = 0.5  # of the advantage weights
VALUE_FACTOR = 10.0  # of what the rewards allow: overestimates that later settle stay below
VALUE_SLACK = 1.0  # values of a network that has not learned yet
DISTANCE_FACTOR = 6.0  # variances of the logged actions; the corner of a uniform log is 4 away
DISTANCE_SLACK = 0.05
LIKELIHOOD_DROP = 10.0  # nats per action dimension: disliked logged actions cost a few


class Watcher(Callback):
    """Looks at the rows of metrics, and warns once of each thing that goes wrong.

    A row holds averages that were computed anyway, so that watching costs nothing. Once a run
    collects, the log no longer says what is possible, and only the final score is compared with it.
    """

    def __init__(
        self,
        facts: DataFacts,
        *,
        gamma: float | None,
        entropy_in_targets: bool = False,
        eval_episodes: int = 0,
        remedies: Mapping[str, str] | None = None,
    ) -> None:
        self.facts, self.gamma, self.entropy_in_targets = facts, gamma, entropy_in_targets
        self.eval_episodes = eval_episodes
        self.remedies = remedies or {}
        self.warnings: dict[str, str] = {}  # by check
        self._best_likelihood = -math.inf
        self._score: tuple[float, float] | None = None  # mean and deviation of the last evaluation

    def on_log(self, state: TrainerState, metrics: Mapping[str, float]) -> None:
        if state.phase != "offline":
            return
        terms = {
            name.removeprefix("train/"): value
            for name, value in metrics.items()
            if name.startswith("train/")
        }
        for check in (self._saturated_weights, self._exploded_values, self._distant_policy):
            text = check(terms)
            if text is not None:
                self._warn(check.__name__, f"step {state.global_step}: {text}")

    def on_eval_end(self, state: TrainerState, metrics: Mapping[str, float]) -> None:
        if "eval/return_mean" in metrics:  # not of a validation without an environment
            self._score = metrics["eval/return_mean"], metrics["eval/return_std"]

    def on_train_end(self, state: TrainerState) -> None:
        """Compare the final policy with the policies that made the log."""
        behaviour = self.facts.behaviour
        if self._score is None or behaviour is None or state.stop_reason == INTERRUPTED:
            return
        mean, deviation = self._score
        error = math.hypot(deviation / math.sqrt(self.eval_episodes), behaviour.standard_error)
        if mean + 2 * error < behaviour.mean:
            self._warn(
                "below_behaviour",
                f"the final policy returns {mean:.4g} over {self.eval_episodes} episodes, less than "
                f"the log itself, {behaviour.mean:.4g} over {behaviour.episodes} episodes: "
                f"{self._remedy('policy')}train longer, or look at the log with `rl-training data "
                "check`",
            )

    def state_dict(self) -> dict[str, Any]:
        return {
            "warnings": dict(self.warnings),
            "best_likelihood": self._best_likelihood,
            "score": None if self._score is None else list(self._score),
        }

    def load_state_dict(self, values: dict[str, Any]) -> None:
        self.warnings = {str(name): str(text) for name, text in values["warnings"].items()}
        self._best_likelihood = number(values["best_likelihood"])
        if values["score"] is not None:
            mean, deviation = values["score"]
            self._score = number(mean), number(deviation)

    def _saturated_weights(self, terms: Mapping[str, float]) -> str | None:
        share = terms.get("advantage_weight_capped", 0.0)
        if share <= CAPPED_SHARE:
            return None
        return (
            f"{share:.0%} of the advantage weights are at their bound, so that good and bad logged "
            f"actions are cloned alike: {self._remedy('weights')}scale the rewards down "
            "(reward_scale), or normalise observations (normalize_observations: true)"
        )

    def _exploded_values(self, terms: Mapping[str, float]) -> str | None:
        if self.gamma is None or self.gamma >= 1 or self.facts.largest_reward == 0:
            return None
        step = self.facts.largest_reward
        if self.entropy_in_targets:
            step += abs(terms.get("alpha", 0.0)) * self.facts.action_dim
        possible = step / (1 - self.gamma)
        values = [terms.get(name, 0.0) for name in ("q_mean", "target_q_mean", "policy_q_mean")]
        largest = max(values, key=abs)
        if abs(largest) <= VALUE_FACTOR * possible + VALUE_SLACK:
            return None
        return (
            f"values have reached {largest:.4g}, but rewards of at most {step:.4g} and gamma "
            f"{self.gamma:g} allow {possible:.4g} at most: {self._remedy('values')}lower "
            "learning_rate or gamma, or normalise observations (normalize_observations: true)"
        )

    def _distant_policy(self, terms: Mapping[str, float]) -> str | None:
        variance = self.facts.action_variance
        distance = terms.get("action_distance", 0.0)
        if variance is not None and distance > DISTANCE_FACTOR * variance + DISTANCE_SLACK:
            return (
                f"the policy has left the data: its actions are {math.sqrt(distance):.2g} away from "
                f"the logged ones, which spread by {math.sqrt(variance):.2g} (in half ranges): "
                f"{self._remedy('policy')}or lower learning_rate"
            )
        return self._fallen_likelihood(terms)

    def _fallen_likelihood(self, terms: Mapping[str, float]) -> str | None:
        """Compare with the uniform policy, and with earlier rows: some policies begin far away."""
        discrete = self.facts.action_variance is None
        if discrete and "conservative_gap" in terms:
            likelihood = -terms["conservative_gap"]  # log softmax(Q) of the logged choice
        elif "log_prob_mean" in terms:
            likelihood = terms["log_prob_mean"]
        else:
            return None
        before, self._best_likelihood = (
            self._best_likelihood,
            max(self._best_likelihood, likelihood),
        )
        dimensions = 1 if discrete else self.facts.action_dim
        expected = min(self.facts.uniform_log_prob, before)
        if likelihood >= expected - LIKELIHOOD_DROP * dimensions:
            return None
        return (
            f"the policy has left the data: the log-likelihood of logged actions fell from "
            f"{before:.3g} to {likelihood:.3g}: {self._remedy('policy')}or lower learning_rate"
        )

    def _remedy(self, kind: str) -> str:
        """Return the option of this algorithm to change first, if it has one."""
        return f"{self.remedies[kind]}, " if kind in self.remedies else ""

    def _warn(self, name: str, text: str) -> None:
        if name not in self.warnings:
            self.warnings[name] = text
            log.warning("%s", text)
