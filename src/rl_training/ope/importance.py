"""Importance weighting: the value of a policy from the log of another one.

Every estimator here has one estimand: the discounted value from the initial states, for ever. Terminated episodes
end. Cut ones do not: the value of the observation at the cut, `v_next`, stands for their rest.

In all of them an episode is the sum of its weighted terms, x_t = gamma^t r_t, or a TD error for the doubly robust
ones. With rho_t = prod_{k<=t} pi(a_k|s_k) / b(a_k|s_k) and T steps:

| name    | value                                                                                   |
|---------|-----------------------------------------------------------------------------------------|
| `is`    | mean of rho_{T-1} sum_t x_t                                                             |
| `pdis`  | mean of sum_t rho_t x_t (per decision; Precup et al., 2000)                             |
| `wis`   | `is`, weights divided by their mean over episodes (self-normalised)                     |
| `pdwis` | `pdis`, weights divided by their mean over episodes at each step                        |
| `dr`    | doubly robust (Jiang & Li, 2016): v(s_0) + `pdis` of the TD errors r + gamma v(s') - q  |
| `wdr`   | weighted doubly robust (Thomas & Brunskill, 2016): v(s_0) + `pdwis` of the TD errors    |

An episode that has ended keeps its last weight in the mean of later steps, where its terms are 0. Without it
the mean would be taken over the long episodes only, and the estimate would not converge to the value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from rl_training.ope.intervals import bootstrap_interval
from rl_training.ope.weighted_log import Floats, WeightedLog

__all__ = [
    "DOUBLY_ROBUST",
    "ESTIMATORS",
    "TRUSTED_SAMPLE_SIZE",
    "Estimate",
    "Estimator",
    "WeightedLog",
    "importance_estimates",
]

Estimator = Literal["is", "pdis", "wis", "pdwis", "dr", "wdr"]
ESTIMATORS: tuple[Estimator, ...] = get_args(Estimator)
SELF_NORMALISED = ("wis", "pdwis", "wdr")
DOUBLY_ROBUST = ("dr", "wdr")

# effective sample size from which on intervals have covered about as often as they say; see `intervals`
TRUSTED_SAMPLE_SIZE = 30.0
# squares of larger weights do not fit into a float
MAX_LOG_WEIGHT = 300.0


@dataclass(frozen=True)
class Estimate:
    """Value of a policy with its interval; `value`, `low` and `high` are NaN where `applies` is False.

    `contributions` holds one number per episode with the estimate as mean: the weighted return, and for
    self-normalised estimators its linearisation, value + influence of the episode.

    `effective_sample_size` is (sum w)^2 / sum w^2 of the trajectory weights,
    `smallest_step_effective_sample_size` the smallest over the steps, and `mean_weight` the mean trajectory weight,
    which is 1 but for chance.
    """

    name: Estimator
    value: float
    low: float
    high: float
    effective_sample_size: float
    smallest_step_effective_sample_size: float
    mean_weight: float
    contributions: Floats
    applies: bool = True
    reason: str = ""


@dataclass(frozen=True)
class _Weights:
    """Weights of a log, as logarithms: of rows, of episodes at their end, and over episodes at each step."""

    rows: Floats
    last: Floats
    step_sums: Floats  # log of the sum over episodes, ended ones with their last weight
    step_square_sums: Floats

    @staticmethod
    def of(log: WeightedLog) -> _Weights:
        rows = log.log_weights()
        last = rows[log.last]
        sums, squares = (_log_step_sums(log, power * rows) for power in (1, 2))
        return _Weights(rows, last, sums, squares)

    def effective_sample_sizes(self) -> Floats:
        """(sum w)^2 / sum w^2 at each step; the last one is that of the trajectory weights."""
        dead = np.isneginf(self.step_sums)
        sums, squares = (
            np.where(dead, 0.0, sums) for sums in (self.step_sums, self.step_square_sums)
        )
        return np.where(dead, 0.0, np.exp(2 * sums - squares))


def _log_step_sums(log: WeightedLog, log_values: Floats) -> Floats:
    """Log of the sum over episodes of exp(log_values) at each step; ended episodes count with their last value."""
    steps = int(log.lengths.max())
    running = _log_sums_by(log.time, log_values, steps)
    ended = _log_sums_by(log.lengths, log_values[log.last], steps + 1)[:steps]
    result: Floats = np.logaddexp(running, np.logaddexp.accumulate(ended))
    return result


def _log_sums_by(index: NDArray[np.int64], log_values: Floats, size: int) -> Floats:
    """Log of the sum of exp(log_values) by index, shifted by the largest value so that nothing overflows."""
    largest = np.full(size, -np.inf)
    np.maximum.at(largest, index, log_values)
    shift = np.where(np.isneginf(largest), 0.0, largest)
    sums = np.bincount(index, np.exp(log_values - shift[index]), size)
    with np.errstate(divide="ignore"):
        result: Floats = np.log(sums) + shift
    return result


def _sums(log: WeightedLog, values: Floats) -> Floats:
    """Sum over the rows of each episode."""
    result: Floats = np.add.reduceat(values, log.starts)
    return result


def _trajectory_wise(log: WeightedLog, weights: _Weights, terms: Floats) -> Floats:
    return np.exp(weights.last) * _sums(log, terms)


def _per_decision(log: WeightedLog, weights: _Weights, terms: Floats) -> Floats:
    return _sums(log, np.exp(weights.rows) * terms)


def _weighted_trajectory_wise(log: WeightedLog, weights: _Weights, terms: Floats) -> Floats:
    """Value + influence: V + n w_i (G_i - V) with weights that sum to 1."""
    share = np.exp(weights.last - weights.step_sums[-1])
    returns = _sums(log, terms)
    value = share @ returns
    result: Floats = value + len(share) * share * (returns - value)
    return result


def _weighted_per_decision(log: WeightedLog, weights: _Weights, terms: Floats) -> Floats:
    """Value + influence, a sum over steps: V_t + n w_it (x_it - V_t) with weights that sum to 1 at each step.

    Steps after the end of an episode are a sum over the tail of V_t / sum_j w_jt, taken in logarithms.
    """
    time = log.time
    share = np.exp(weights.rows - weights.step_sums[time])
    values = np.bincount(time, share * terms)  # V_t
    running = _sums(log, share * (terms - values[time]))
    with np.errstate(divide="ignore"):
        sizes = np.log(np.abs(values)) - weights.step_sums
    ended = np.zeros(len(running))
    for sign in (1.0, -1.0):
        parts = np.where(np.sign(values) == sign, sizes, -np.inf)
        tails = np.append(np.logaddexp.accumulate(parts[::-1])[::-1], -np.inf)
        ended += sign * np.exp(weights.last + tails[log.lengths])
    result: Floats = values.sum() + len(running) * (running - ended)
    return result


_CONTRIBUTIONS = {
    "is": _trajectory_wise,
    "pdis": _per_decision,
    "wis": _weighted_trajectory_wise,
    "pdwis": _weighted_per_decision,
    "dr": _per_decision,
    "wdr": _weighted_per_decision,
}


def importance_estimates(
    log: WeightedLog,
    estimators: Sequence[Estimator] = ESTIMATORS,
    *,
    confidence: float = 0.95,
    replicates: int = 2000,
    seed: int = 0,
) -> list[Estimate]:
    """Estimate the value of the policy behind `log.log_ratios`, with intervals by bootstrap over episodes.

    Intervals are honest while the effective sample size is at least `TRUSTED_SAMPLE_SIZE`. Below it the heavy
    weights that make up the value are missing from most logs, and from their bootstrap samples too: intervals are
    too narrow and estimates lie on one side. They do not cover errors of `v_next` and of the behaviour's
    probabilities.
    """
    weights = _Weights.of(log)
    sizes = weights.effective_sample_sizes()
    mean_weight = float(np.exp(min(weights.step_sums[-1], 700.0)) / len(log.starts))
    results = []
    for name in estimators:
        reason = _reason_against(name, weights, sizes)
        low = value = high = np.nan
        contributions = np.full(len(log.starts), np.nan)
        if not reason:
            contributions = _contributions(log, name, weights)
            share = (
                np.exp(weights.last - weights.step_sums[-1]) if name in SELF_NORMALISED else None
            )
            value = float(contributions.mean())
            low, high = bootstrap_interval(
                contributions, confidence, leverage=share, replicates=replicates, seed=seed
            )
        results.append(
            Estimate(
                name=name,
                value=value,
                low=low,
                high=high,
                effective_sample_size=float(sizes[-1]),
                smallest_step_effective_sample_size=float(sizes.min()),
                mean_weight=mean_weight,
                contributions=contributions,
                applies=not reason,
                reason=reason,
            )
        )
    return results


def _reason_against(name: Estimator, weights: _Weights, sizes: Floats) -> str:
    """Say why an estimator gives no number for these weights; empty if it does."""
    if len(weights.last) < 2:
        return "an interval needs at least 2 episodes"
    if sizes[-1] == 0:
        return (
            "the policy never takes all logged actions of an episode: every trajectory weight is 0"
        )
    if name in SELF_NORMALISED:
        return "all weight is on one episode" if sizes.min() < 1 + 1e-9 else ""
    largest = float(weights.rows.max())
    if largest > MAX_LOG_WEIGHT:
        return f"the largest importance weight is e^{largest:.0f}"
    return ""


def _contributions(log: WeightedLog, name: Estimator, weights: _Weights) -> Floats:
    doubly_robust = name in DOUBLY_ROBUST
    contributions = _CONTRIBUTIONS[name](
        log, weights, log.discounted_terms(td_errors=doubly_robust)
    )
    if doubly_robust:
        assert log.v_obs is not None  # checked with the terms
        contributions = contributions + log.v_obs[log.starts]
    return contributions
