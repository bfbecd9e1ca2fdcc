"""Statistics over seeds and tasks, with the definitions of Agarwal et al. 2021 (rliable).

Scores are given as one array per task, an entry per run. Intervals are percentile intervals of a stratified
bootstrap: runs are drawn with replacement inside each task. Every function is deterministic for a given `seed`.

A single run has no interval: it says nothing about the spread over seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import comb
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
# takes resampled scores, one (resamples, runs) array per task, and returns a value per resample
Statistic = Callable[[Sequence[Floats]], Floats]

RESAMPLES = 10_000
_PAIR_RESAMPLES = 2_000  # as rliable; pairs cost more than means
_PERMUTATIONS = 20_000
_CHUNK = 1 << 20  # numbers that are resampled at a time


class Interval(NamedTuple):
    """Lower and upper end of a bootstrap interval."""

    low: float
    high: float


@dataclass(frozen=True)
class Summary:
    """Scores of one configuration over its seeds, or over the runs of several tasks.

    Attributes:
        n: number of runs.
        mean: mean over runs; with several tasks, over tasks of the mean over runs.
        std: sample standard deviation over runs; None for one run.
        mean_interval: bootstrap interval of the mean; None where a task has one run.
        iqm: interquartile mean, the mean of the middle half.
        iqm_interval: bootstrap interval of the interquartile mean; None where a task has one run.
        median: median over runs.
    """

    n: int
    mean: float
    std: float | None
    mean_interval: Interval | None
    iqm: float
    iqm_interval: Interval | None
    median: float


def iqm(scores: Any, axis: int | None = None) -> Any:
    """Interquartile mean: a quarter of the scores, rounded down, is left out at each end."""
    values = np.asarray(scores, dtype=np.float64)
    if axis is None:
        values, axis = values.reshape(-1), 0
    number = values.shape[axis]
    if not np.isfinite(values).all():
        return np.full(np.delete(values.shape, axis), np.nan)[()]
    cut = number // 4
    return np.take(np.sort(values, axis=axis), range(cut, number - cut), axis=axis).mean(axis)


def probability_of_improvement(x: Sequence[Floats], y: Sequence[Floats]) -> float:
    """Probability that a run of X scores higher than one of Y, averaged over tasks; a tie counts half.

    In one task this is the Mann-Whitney U statistic divided by the number of pairs.
    """
    return float(np.mean([_win_rate(a, b) for a, b in zip(x, y, strict=True)]))


def _win_rate(x: Floats, y: Floats) -> float:
    """Share of pairs in which x is higher."""
    return float(_wins(x, y).mean() / len(y))


def _wins(x: Floats, y: Floats) -> Floats:
    """Number of entries of y that each entry of x is higher than; a tie counts half."""
    ordered = np.sort(y)
    lower, not_higher = (ordered.searchsorted(x, side=side) for side in ("left", "right"))
    return np.asarray((lower + not_higher) / 2)


def performance_profile(scores: Sequence[Floats], thresholds: Floats) -> Floats:
    """Share of runs, over all tasks, that score above each threshold (run-score distribution)."""
    pooled = np.concatenate([np.asarray(values, dtype=np.float64) for values in scores])
    return np.asarray((pooled[:, None] > thresholds).mean(0))


def mean_over_tasks(scores: Sequence[Floats]) -> Floats:
    """Mean over tasks of the mean over runs; works on the last axis."""
    return np.asarray(np.mean([np.mean(task, axis=-1) for task in scores], axis=0))


def _pooled_iqm(scores: Sequence[Floats]) -> Floats:
    return np.asarray(iqm(np.concatenate(scores, axis=-1), axis=-1))


def bootstrap_interval(
    scores: Sequence[Floats],
    statistic: Statistic,
    *,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval | None:
    """Percentile interval of a statistic, from runs drawn with replacement inside each task.

    None where a task has fewer than two runs, or a score is not finite.
    """
    if not _can_be_resampled(scores):
        return None
    random = np.random.default_rng(seed)
    size = max(1, _CHUNK // sum(map(len, scores)))
    results = [
        statistic([_resample(values, min(size, resamples - start), random) for values in scores])
        for start in range(0, resamples, size)
    ]
    return _percentiles(np.concatenate(results), confidence)


def _can_be_resampled(scores: Sequence[Floats]) -> bool:
    return all(len(values) > 1 and bool(np.isfinite(values).all()) for values in scores)


def _percentiles(values: Floats, confidence: float) -> Interval:
    tail = (1 - confidence) / 2
    low, high = np.quantile(values, [tail, 1 - tail])
    return Interval(float(low), float(high))


def _resample(values: Floats, number: int, random: np.random.Generator) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    return array[random.integers(len(array), size=(number, len(array)))]


def improvement_interval(
    x: Sequence[Floats], y: Sequence[Floats], *, confidence: float = 0.95, seed: int = 0
) -> Interval | None:
    """Interval of `probability_of_improvement`; both sides are resampled, independently."""
    if not _can_be_resampled([*x, *y]):
        return None
    random = np.random.default_rng(seed)
    counts = [_times_drawn(len(values), _PAIR_RESAMPLES, random) for values in (*x, *y)]
    rates = [
        # a resample wins as often as the pairs of runs that it draws
        ((first @ _pair_wins(a, b)) * second).sum(1) / (len(a) * len(b))
        for a, b, first, second in zip(x, y, counts[: len(x)], counts[len(x) :], strict=True)
    ]
    return _percentiles(np.mean(rates, axis=0), confidence)


def _pair_wins(x: Floats, y: Floats) -> Floats:
    """Table of pairs: 1 where x is higher, one half for a tie."""
    return np.asarray((x[:, None] > y) + 0.5 * (x[:, None] == y))


def _times_drawn(number: int, resamples: int, random: np.random.Generator) -> Floats:
    """Number of times that each of several runs is drawn, a row per resample."""
    draws = random.integers(number, size=(resamples, number))
    draws += number * np.arange(resamples)[:, None]
    counts = np.bincount(draws.ravel(), minlength=resamples * number)
    return counts.reshape(resamples, number).astype(np.float64)


def difference_interval(
    x: Sequence[Floats], y: Sequence[Floats], *, confidence: float = 0.95, seed: int = 0
) -> Interval | None:
    """Interval of the mean of X minus the mean of Y; both sides are resampled, independently."""
    number = len(x)
    return bootstrap_interval(
        [*x, *y],
        lambda scores: mean_over_tasks(scores[:number]) - mean_over_tasks(scores[number:]),
        confidence=confidence,
        resamples=_PAIR_RESAMPLES,
        seed=seed,
    )


def permutation_test(x: Sequence[Floats], y: Sequence[Floats], seed: int = 0) -> float:
    """Probability of a win rate at least this far from one half if X and Y were alike (two-sided p-value).

    In one task this is the exact Mann-Whitney test; runs are permuted inside each task. Where there are more than
    20,000 ways to do so, a random sample of them is taken.
    """
    random = np.random.default_rng(seed)
    exact = len(x) == 1 and comb(len(x[0]) + len(y[0]), len(x[0])) <= _PERMUTATIONS
    observed, permuted = 0.0, np.zeros(1)
    for a, b in zip(x, y, strict=True):
        pooled = np.concatenate([a, b])
        ranks = _wins(pooled, pooled)
        ranks = (ranks - ranks.mean()) / (len(a) * len(b))
        observed += ranks[: len(a)].sum()
        if exact:
            permuted = ranks[list(combinations(range(len(pooled)), len(a)))].sum(1)
        else:
            permuted = permuted + _permuted_sums(ranks, len(a), random)
    extreme = int((np.abs(permuted) >= abs(observed) - 1e-9).sum())
    return extreme / len(permuted) if exact else (extreme + 1) / (len(permuted) + 1)


def _permuted_sums(ranks: Floats, number: int, random: np.random.Generator) -> Floats:
    """Sums of so many of the ranks, drawn without replacement."""
    size = max(1, _CHUNK // len(ranks))
    sums = [
        ranks[
            random.random((min(size, _PERMUTATIONS - start), len(ranks))).argsort(1)[:, :number]
        ].sum(1)
        for start in range(0, _PERMUTATIONS, size)
    ]
    return np.concatenate(sums)


def mean_band(
    values: Sequence[Floats], *, confidence: float = 0.95, resamples: int = 2_000, seed: int = 0
) -> tuple[Floats, Floats] | None:
    """Interval of the mean over runs at each of several points, from one (runs, points) array per task.

    None where a task has fewer than two runs. A value that is not finite makes the interval of its point NaN.
    """
    if any(len(rows) < 2 for rows in values):
        return None
    counts, repeats = _draw_counts(tuple(map(len, values)), resamples, seed)
    rows = np.concatenate(values)
    means = (rows.T / len(rows)) @ counts
    damaged = np.isnan(means).any(axis=1)
    tail = (1 - confidence) / 2
    low, high = (
        np.where(damaged, np.nan, ends)
        for ends in _weighted_quantiles(means, repeats, (tail, 1 - tail))
    )
    return low, high


def _weighted_quantiles(
    values: Floats, weights: NDArray[np.int64], shares: Sequence[float]
) -> list[Floats]:
    """Least values of each row that have at least a share of the weights at or below them."""
    if (weights == 1).all():  # many runs; finding two ranks is faster than sorting
        reached = np.arange(1, len(weights) + 1) / len(weights)
        ranks = [int((reached < share).sum()) for share in shares]
        return list(np.partition(values, ranks, axis=1)[:, ranks].T)
    order = values.argsort(axis=1)
    values = np.take_along_axis(values, order, axis=1)
    reached = weights[order].cumsum(axis=1) / weights.sum()
    rows = np.arange(len(values))
    return [values[rows, (reached < share).sum(axis=1)] for share in shares]


@lru_cache(maxsize=64)  # curves of many metrics have the same number of runs
def _draw_counts(
    numbers: tuple[int, ...], resamples: int, seed: int
) -> tuple[Floats, NDArray[np.int64]]:
    """Number of times that each run is drawn, a column per distinct resample, and the number of resamples like it.

    Five runs have 126 distinct resamples, so this saves most of the work.
    """
    random = np.random.default_rng(seed)
    counts = [_times_drawn(number, resamples, random).T for number in numbers]
    return np.unique(np.concatenate(counts), axis=1, return_counts=True)


def summarize(scores: Sequence[Floats], *, confidence: float = 0.95, seed: int = 0) -> Summary:
    """Summarize the scores of one configuration; with several tasks, over the runs of all of them."""
    values = np.concatenate([np.asarray(task, dtype=np.float64) for task in scores])
    std = None
    with np.errstate(invalid="ignore", over="ignore"):  # scores that are not finite, or nearly so
        if len(values) > 1:
            std = float(values.std(ddof=1))
        return Summary(
            n=len(values),
            mean=float(mean_over_tasks(scores)),
            std=std,
            mean_interval=bootstrap_interval(
                scores, mean_over_tasks, confidence=confidence, seed=seed
            ),
            iqm=float(iqm(values)),
            iqm_interval=bootstrap_interval(scores, _pooled_iqm, confidence=confidence, seed=seed),
            median=float(np.median(values)),
        )
