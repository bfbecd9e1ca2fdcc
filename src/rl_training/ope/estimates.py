"""Estimates of a policy's value, by fitted Q evaluation and by importance weighting, as rows of a card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rl_training.ope.behaviour import BehaviourProbabilities
from rl_training.ope.card import CardEstimate, Interval
from rl_training.ope.fitted_q import FittedValues
from rl_training.ope.importance import (
    TRUSTED_SAMPLE_SIZE,
    Estimate,
    Estimator,
    WeightedLog,
    importance_estimates,
)
from rl_training.ope.intervals import bootstrap_interval, replicate_margin
from rl_training.ope.judged_log import JudgedLog, Numbers

WEIGHTING: tuple[Estimator, ...] = ("pdis", "wis", "pdwis", "dr", "wdr")


def behaviour_interval(returns: Numbers, confidence: float) -> Interval:
    """Value of the behaviour; returns (members, episodes) differ in the estimated rest of cut episodes."""
    means = returns.mean(0)
    low, high = bootstrap_interval(means, confidence)
    # two independent sources of doubt: which episodes the log has, and the rest of those that were cut
    margin = np.hypot((high - low) / 2, replicate_margin(returns.mean(1), confidence))
    return Interval(float(means.mean()), float(means.mean() - margin), float(means.mean() + margin))


def replicate_interval(values: FittedValues, per_episode: Numbers, confidence: float) -> Interval:
    """Mean over episodes of numbers (members, episodes), with an interval from the members' replicates."""
    center = float(per_episode.mean())
    margin = replicate_margin(values.replicates(per_episode), confidence)
    return Interval(center, center - margin, center + margin)


def fitted_estimate(
    values: FittedValues, initial: Numbers, returns: Numbers, confidence: float
) -> CardEstimate:
    """Fitted Q evaluation at first states, and its difference to the behaviour on the same replicates."""
    return CardEstimate(
        "fqe",
        replicate_interval(values, initial, confidence),
        replicate_interval(values, initial - returns, confidence),
    )


@dataclass(frozen=True)
class Weighted:
    """Importance weighting of one log for one policy."""

    rows: list[CardEstimate]
    behaviour: BehaviourProbabilities | None = None
    log10_weights: Numbers | None = None  # of trajectories
    contributions: Mapping[str, Numbers] = field(default_factory=dict)  # (episodes,) by estimator

    @staticmethod
    def none(reason: str) -> Weighted:
        """Rows of importance weighting where it does not apply."""
        return Weighted([CardEstimate(name, trusted=False, reason=reason) for name in WEIGHTING])


def weighted_estimates(
    log: JudgedLog,
    values: FittedValues,
    log_probs: Numbers,
    behaviour: BehaviourProbabilities,
    returns: Numbers,
    confidence: float,
) -> Weighted:
    """Importance weighting with the policy's and the behaviour's log-probabilities (rows,) of logged actions."""
    logged, states, next_states = values.along()
    weighted = WeightedLog(
        log.starts,
        log.lengths,
        log.rewards,
        log.terminated,
        log_probs - behaviour.log_probs,
        log.gamma,
        q_logged=logged,
        v_obs=states,
        v_next=next_states,
    )
    results = importance_estimates(weighted, WEIGHTING, confidence=confidence)
    rows = [_row(result, behaviour, returns.mean(0), confidence) for result in results]
    return Weighted(
        rows,
        behaviour,
        weighted.log_weights()[weighted.last] / np.log(10),
        {result.name: result.contributions for result in results if result.applies},
    )


def _row(
    result: Estimate, behaviour: BehaviourProbabilities, returns: Numbers, confidence: float
) -> CardEstimate:
    size = result.effective_sample_size
    if not result.applies:
        return CardEstimate(
            result.name, effective_sample_size=size, trusted=False, reason=result.reason
        )
    gap = result.contributions - returns
    low, high = bootstrap_interval(gap, confidence)
    reason: str | None = None
    if size < TRUSTED_SAMPLE_SIZE:
        reason = f"effective sample size {size:.0f}, and {TRUSTED_SAMPLE_SIZE:.0f} are needed"
    elif not behaviour.calibrated:
        reason = "the fitted behaviour model is not calibrated"
    return CardEstimate(
        result.name,
        Interval(result.value, result.low, result.high),
        Interval(float(gap.mean()), low, high),
        size,
        trusted=reason is None,
        reason=reason,
    )


def card_model(behaviour: BehaviourProbabilities | None) -> dict[str, Any] | None:
    """Origin and calibration of the behaviour's probabilities, as plain values; None if none were used."""
    if behaviour is None:
        return None
    return {
        "source": behaviour.source,
        "calibrated": behaviour.calibrated,
        "calibration": dict(behaviour.calibration),
    }
