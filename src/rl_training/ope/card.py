"""The score card: the log's own value, every estimate of the policy's, and a verdict. JSON in both directions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Verdict = Literal["better than the log", "not distinguishable", "worse", "do not trust this"]

LABELS = {
    "fqe": "fitted Q evaluation",
    "pdis": "per-decision importance sampling",
    "wis": "weighted importance sampling",
    "pdwis": "per-decision weighted",
    "dr": "doubly robust",
    "wdr": "weighted doubly robust",
}


def estimator_label(name: str) -> str:
    """Name an estimator in words."""
    return LABELS[name]


@dataclass(frozen=True)
class Interval:
    """A value and the bounds that it lies within at the card's confidence."""

    value: float
    low: float
    high: float

    def overlaps(self, other: Interval) -> bool:
        return self.low <= other.high and other.low <= self.high

    def __str__(self) -> str:
        return f"{self.value:.4g} ({self.low:.4g} to {self.high:.4g})"


@dataclass(frozen=True)
class CardEstimate:
    """One estimate of the policy's value, or why there is none."""

    name: str
    estimate: Interval | None = None
    difference: Interval | None = None  # to the behaviour's value, over the same episodes
    effective_sample_size: float | None = None  # of importance weights
    trusted: bool = True  # its interval covers as often as it says
    reason: str | None = None  # why it does not apply, or is not trusted

    @property
    def label(self) -> str:
        return estimator_label(self.name)

    def as_dict(self) -> dict[str, Any]:
        bounds = {"value": None, "low": None, "high": None}
        return {
            "name": self.name,
            "label": self.label,
            "applies": self.estimate is not None,
            "trusted": self.trusted,
            "reason": self.reason,
            **(bounds if self.estimate is None else asdict(self.estimate)),
            "effective_sample_size": self.effective_sample_size,
            "difference": None if self.difference is None else asdict(self.difference),
        }


@dataclass(frozen=True)
class ScoreCard:
    """Judgement of one policy by one log. Values are discounted returns for ever, from first states."""

    policy: dict[str, Any]
    log: dict[str, Any]
    gamma: float
    confidence: float
    behaviour: Interval
    estimates: Sequence[CardEstimate]
    support: dict[str, float]
    verdict: Verdict
    reasons: Sequence[str]
    notes: Sequence[str] = ()
    behaviour_model: dict[str, Any] | None = None
    pictures: dict[str, Any] = field(default_factory=dict)

    def estimate(self, name: str) -> CardEstimate:
        """Return the estimate of one method: `fqe`, `wdr`, ..."""
        return next(estimate for estimate in self.estimates if estimate.name == name)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON, and for the page."""
        return {
            "policy": self.policy,
            "log": self.log,
            "gamma": self.gamma,
            "confidence": self.confidence,
            "behaviour": asdict(self.behaviour),
            "estimates": [estimate.as_dict() for estimate in self.estimates],
            "support": self.support,
            "behaviour_model": self.behaviour_model,
            "verdict": self.verdict,
            "reasons": list(self.reasons),
            "notes": list(self.notes),
            "pictures": self.pictures,
        }
