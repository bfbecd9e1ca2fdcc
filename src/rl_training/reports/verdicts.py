"""Verdicts on pairs: difference, probability of improvement, and a plain sentence that claims no more than they allow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

import numpy as np

from rl_training.reports.statistics import (
    Floats,
    Interval,
    Summary,
    difference_interval,
    improvement_interval,
    permutation_test,
    probability_of_improvement,
    summarize,
)


@dataclass(frozen=True)
class Verdict:
    """First side of a pair against the second.

    Attributes:
        x: name of the first side.
        y: name of the second side.
        task: name of the task; None is the average over all tasks that both have.
        difference: mean of x minus mean of y; None over several tasks, whose scales differ.
        difference_interval: its bootstrap interval; None with one seed.
        probability: that a run of x scores higher than one of y; a tie counts half.
        probability_interval: its bootstrap interval; None with one seed.
        p_value: two-sided, of the exact Mann-Whitney test.
        sentence: `x is better`, or `not distinguishable ...` with the reason.
    """

    x: str
    y: str
    task: str | None
    difference: float | None
    difference_interval: Interval | None
    probability: float
    probability_interval: Interval | None
    p_value: float
    sentence: str


@dataclass(frozen=True)
class Judge:
    """Computes verdicts; `better` says that higher scores are known to be better."""

    better: bool
    confidence: float
    seed: int

    def summary(self, scores: Sequence[float]) -> Summary | None:
        """Summarize one side; None without scores."""
        if not scores:
            return None
        return summarize([np.array(scores)], confidence=self.confidence, seed=self.seed)

    def verdict(
        self,
        x: str,
        y: str,
        task: str | None,
        x_scores: Sequence[Sequence[float]],
        y_scores: Sequence[Sequence[float]],
    ) -> Verdict:
        """Judge x against y from their finite scores, one sequence per task."""
        first, second = (
            [np.array(scores, dtype=np.float64) for scores in side] for side in (x_scores, y_scores)
        )
        difference = interval = None
        if task is not None:
            difference = float(first[0].mean() - second[0].mean())
            interval = difference_interval(
                first, second, confidence=self.confidence, seed=self.seed
            )
        probability = probability_of_improvement(first, second)
        p_value = permutation_test(first, second, self.seed)
        return Verdict(
            x=x,
            y=y,
            task=task,
            difference=difference,
            difference_interval=interval,
            probability=probability,
            probability_interval=improvement_interval(
                first, second, confidence=self.confidence, seed=self.seed
            ),
            p_value=p_value,
            sentence=self._doubt(first, second, probability, p_value, interval)
            or f"{x if probability > 0.5 else y} is {'better' if self.better else 'higher'}",
        )

    def _doubt(
        self,
        x: Sequence[Floats],
        y: Sequence[Floats],
        probability: float,
        p_value: float,
        interval: Interval | None,
    ) -> str | None:
        """Say why the sides cannot be told apart; None if they can.

        A bootstrap interval of few seeds is too narrow, so that the exact test has to agree with it.
        """
        numbers = [f"{sum(map(len, side))}" for side in (x, y)]
        unclear = f"not distinguishable with {numbers[0]} and {numbers[1]} seeds"
        level = 1 - self.confidence
        least = 2 / comb(len(x[0]) + len(y[0]), len(x[0])) if len(x) == 1 else 0.0
        if least > level:
            return (
                f"{unclear}: even a complete order of so few seeds arises by chance in {least:.0%} of "
                f"cases; {_seeds_needed(level)} per side are enough for a clear difference"
            )
        if p_value > level:
            return f"{unclear}: a difference like this arises by chance in {p_value:.0%} of cases"
        if interval is not None and interval.low <= 0 <= interval.high:
            return f"{unclear}: the interval of the difference holds 0"
        if interval is not None and (interval.low > 0) != (probability > 0.5):
            return f"{unclear}: the side with the higher mean has the lower score in most pairs of runs"
        return None


def _seeds_needed(level: float) -> int:
    """Smallest number of seeds per side with which the exact test can reach a level."""
    return next(number for number in range(1, 100) if 2 / comb(2 * number, number) <= level)
