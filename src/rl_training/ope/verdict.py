"""The verdict: is the policy better than the log, and may the numbers be trusted?

A verdict needs estimates that can be right. Each reason for doubt below has a threshold that is stated here and
nowhere else. With one of them the verdict is `do not trust this`, whatever the numbers are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rl_training.ope.card import CardEstimate, Interval, Verdict
from rl_training.ope.judged_log import JudgedLog, Numbers

FEWEST_EPISODES = 10
MOST_UNLIKE = 0.1  # share of the policy's actions that are unlike any logged one
WIDEST = 1.0  # half width of the fitted estimate, in deviations of the log's returns to go
LARGEST_DRIFT = 0.5  # of the estimate over the fit's last quarter, in half widths of its interval
LARGEST_MISS = 0.25  # of the log's own value by the same method, in deviations of its returns
POSSIBLE = 1.05  # slack around the values that the log's rewards allow


@dataclass(frozen=True)
class Evidence:
    """Facts beside the estimates that a verdict rests on."""

    log: JudgedLog
    behaviour: Interval
    fitted_behaviour: Interval  # the log's own value, by fitted evaluation alone
    unlike_share: float
    trace: Numbers  # estimates while fitted Q evaluation was fitted

    @property
    def miss(self) -> float:
        """Error of fitted evaluation where it is known: at the log's own value."""
        return abs(self.fitted_behaviour.value - self.behaviour.value)


def judge_evidence(
    estimates: Sequence[CardEstimate], evidence: Evidence
) -> tuple[Verdict, list[str]]:
    """Return the verdict and the reasons for it."""
    doubts = [*_doubts_of_data(evidence), *_doubts_of_fit(estimates, evidence)]
    if doubts:
        return "do not trust this", doubts
    counted = [estimate for estimate in estimates if estimate.trusted and estimate.difference]
    bounds = [_bounds(estimate, evidence.miss) for estimate in counted]
    low, high = min(low for low, _ in bounds), max(high for _, high in bounds)
    names = " and ".join(estimate.label for estimate in counted)
    if low > 0:
        return "better than the log", [f"by at least {low:.4g}, according to {names}"]
    if high < 0:
        return "worse", [f"by at least {-high:.4g}, according to {names}"]
    return "not distinguishable", [
        f"the difference to the log lies between {low:.4g} and {high:.4g}, according to {names}"
    ]


def _bounds(estimate: CardEstimate, miss: float) -> tuple[float, float]:
    """Bounds of the difference to the log.

    Those of fitted Q evaluation are wider by its miss of the log's own value: an error that all members
    share does not show in their spread.
    """
    assert estimate.difference is not None
    slack = miss if estimate.name == "fqe" else 0.0
    return estimate.difference.low - slack, estimate.difference.high + slack


def _doubts_of_data(evidence: Evidence) -> list[str]:
    doubts, episodes = [], len(evidence.log.starts)
    if episodes < FEWEST_EPISODES:
        doubts.append(f"the log has {episodes} episodes; at least {FEWEST_EPISODES} are needed")
    if evidence.unlike_share > MOST_UNLIKE:
        doubts.append(
            f"{evidence.unlike_share:.0%} of the policy's actions are unlike any logged one"
        )
    return doubts


def _doubts_of_fit(estimates: Sequence[CardEstimate], evidence: Evidence) -> list[str]:
    fqe = next(estimate.estimate for estimate in estimates if estimate.name == "fqe")
    assert fqe is not None
    doubts = []
    half_width = (fqe.high - fqe.low) / 2
    if half_width > WIDEST / evidence.log.value_scale:
        doubts.append(
            f"fitted Q evaluation is off by up to {half_width:.4g}, more than the log's returns vary"
        )
    drift = drift_of(evidence.trace)
    if drift > LARGEST_DRIFT * half_width:
        doubts.append(
            f"fitted Q evaluation still moves, by {drift:.4g} over its last quarter: raise --updates"
        )
    low, high = (POSSIBLE * bound for bound in evidence.log.possible_values)
    if not low <= fqe.value <= high:
        doubts.append(
            f"fitted Q evaluation says {fqe.value:.4g}, but the log's rewards allow values from "
            f"{low:.4g} to {high:.4g} only"
        )
    doubt = max(
        LARGEST_MISS * float(evidence.log.returns.std()),
        evidence.behaviour.high - evidence.behaviour.low,
    )
    if evidence.miss > doubt:
        doubts.append(
            f"the same method gives {evidence.fitted_behaviour.value:.4g} for the log's own value, "
            f"which is {evidence.behaviour.value:.4g}"
        )
    for other in estimates:
        if other.trusted and other.estimate and not other.estimate.overlaps(fqe):
            doubts.append(
                f"estimators disagree: fitted Q evaluation {fqe}, {other.label} {other.estimate}"
            )
    return doubts


def drift_of(trace: Numbers) -> float:
    """Distance that the estimate moved over the last quarter of a fit."""
    if len(trace) < 4:
        return 0.0
    return float(abs(trace[-1] - trace[-1 - len(trace) // 4]))
