"""Selection: rank policies by one estimator, and say how far apart the first two are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rl_training.config import ConfigError, RunError, suggest
from rl_training.data.locations import load_location
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.ope.card import LABELS, Interval, ScoreCard
from rl_training.ope.estimates import replicate_interval
from rl_training.ope.fitted_q import FitOptions
from rl_training.ope.intervals import bootstrap_interval
from rl_training.ope.judged_policy import JudgedPolicy
from rl_training.ope.judging import (
    CONFIDENCE,
    OUTPUT_DIR,
    Judgement,
    judge_policy,
    judged_policy,
    open_log,
)


@dataclass(frozen=True)
class Ranking:
    """Score cards in the order of one estimator, the best first; those without an estimate come last."""

    estimator: str
    cards: Sequence[ScoreCard]
    gap: Interval | None  # between the first two that have an estimate, over the same episodes

    @property
    def best(self) -> ScoreCard:
        """Card of the first policy whose numbers may be trusted."""
        for card in self.cards:
            if self._is_trusted(card):
                return card
        raise RunError(
            f"none of {len(self.cards)} policies has an estimate by {self.estimator} that may be "
            "trusted; `rl-training ope` says why"
        )

    @property
    def is_clear(self) -> bool:
        """True if the first policy is better than the second one beyond doubt."""
        return self.gap is not None and self.gap.low > 0 and self.is_trusted

    @property
    def is_trusted(self) -> bool:
        """True if the numbers of the first two policies may be trusted."""
        return all(self._is_trusted(card) for card in self.cards[:2])

    def _is_trusted(self, card: ScoreCard) -> bool:
        estimate = card.estimate(self.estimator)
        return (
            estimate.estimate is not None
            and estimate.trusted
            and card.verdict != "do not trust this"
        )

    def as_dict(self) -> dict[str, Any]:
        cards = [card.as_dict() for card in self.cards]
        for card in cards:
            del card["pictures"]
        return {
            "estimator": self.estimator,
            "gap": None if self.gap is None else asdict(self.gap),
            "clear": self.is_clear,
            "policies": cards,
        }


def select(
    policies: Sequence[str | Path],
    dataset: str | Path | TransitionDataset,
    *,
    by: str = "fqe",
    gamma: float | None = None,
    stochastic: bool = False,
    held_out: bool = False,
    confidence: float = CONFIDENCE,
    options: FitOptions | None = None,
    output_dir: str | Path = OUTPUT_DIR,
    progress_bar: bool = False,
) -> Ranking:
    """Rank checkpoints or runs by one estimator: `fqe`, `pdis`, `wis`, `pdwis`, `dr`, `wdr`.

    All of them are judged with one discount: `gamma`, or the largest that one was trained with.
    """
    if by not in LABELS:
        raise ConfigError(f"{by!r} is no estimator{suggest(by, LABELS)}: {', '.join(LABELS)}")
    if not policies:
        raise ConfigError("there is no policy to choose from")
    judged = [judged_policy(policy, stochastic) for policy in policies]
    _refuse_different_problems(judged)
    chosen = max(policy.gamma for policy in judged) if gamma is None else gamma
    if held_out:
        _refuse_different_splits(judged)
    if not isinstance(dataset, TransitionDataset):
        dataset = load_location(str(dataset))
    judgements = [
        judge_policy(
            policy,
            open_log(dataset, policy, chosen, held_out),
            confidence=confidence,
            options=options or FitOptions(),
            output_dir=output_dir,
            progress_bar=progress_bar,
        )
        for policy in judged
    ]
    ranked = sorted(judgements, key=lambda judgement: _rank(judgement, by))
    gap = _gap(ranked[0], ranked[1], by, confidence) if len(ranked) > 1 else None
    return Ranking(by, [judgement.card for judgement in ranked], gap)


def _refuse_different_problems(policies: Sequence[JudgedPolicy]) -> None:
    first = policies[0]
    for other in policies[1:]:
        # bounds may differ: without an environment they are those of the log
        reasons = first.spec.misfits(other.spec)
        if reasons:
            raise ConfigError(
                f"{other.path} does not fit the problem of {first.path}: {', '.join(reasons)}"
            )


def _refuse_different_splits(policies: Sequence[JudgedPolicy]) -> None:
    first = policies[0]
    for other in policies[1:]:
        if other.identity.get("validation") != first.identity.get("validation"):
            raise ConfigError(
                f"{other.path} and {first.path} have different held-out episodes: train with one seed "
                "and one validation_fraction, or judge by another log"
            )


def _rank(judgement: Judgement, by: str) -> float:
    estimate = judgement.card.estimate(by).estimate
    return float("inf") if estimate is None else -estimate.value


def _gap(first: Judgement, second: Judgement, by: str, confidence: float) -> Interval | None:
    """Difference of two policies over the same episodes and bootstrap samples."""
    if by == "fqe":
        return replicate_interval(first.values, first.initial - second.initial, confidence)
    if by not in first.contributions or by not in second.contributions:
        return None
    gap = first.contributions[by] - second.contributions[by]
    low, high = bootstrap_interval(gap, confidence)
    return Interval(float(gap.mean()), low, high)
