"""Bootstrap intervals over episodes."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# resampled values that are in memory at a time
CHUNK = 4_000_000
LEAST_ERROR = 0.25


def bootstrap_interval(
    contributions: Floats,
    confidence: float,
    *,
    leverage: Floats | None = None,
    replicates: int = 2000,
    seed: int = 0,
) -> tuple[float, float]:
    """Bootstrap-t interval of the mean of `contributions`, one per episode: hull of the equal-tailed and symmetric one.

    It is never narrower than Student's interval.

    `leverage` is the share of each episode in the weights of a self-normalised estimator. Deviations are divided
    by 1 - leverage, as the jackknife does: linearisation alone understates the influence of a heavy episode.

    Chosen by coverage: share of 90 % intervals, in per cent, that hold the known value of a tabular problem, over
    1,000 logs of 100 episodes, for `is`, `wis` and `wdr`. The policy moves away from the behaviour to the right;
    the median effective sample size is the column.

    | interval                            | 85         | 55         | 26         | 7          |
    |-------------------------------------|------------|------------|------------|------------|
    | percentile                          | 89, 89, 89 | 83, 87, 89 | 73, 79, 87 |            |
    | BCa                                 | 88, 88, 88 | 84, 84, 86 | 77, 80, 81 |            |
    | equal-tailed bootstrap-t            | 90, 89, 90 | 87, 86, 88 | 79, 77, 84 |            |
    | symmetric bootstrap-t               | 90, 90, 89 | 87, 89, 90 | 77, 81, 87 |            |
    | hull of both, with leverage (this)  | 92, 92, 92 | 91, 90, 92 | 85, 87, 92 | 47, 54, 87 |
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}; it must be between 0 and 1.")
    episodes = len(contributions)
    if episodes < 2:
        raise ValueError("An interval needs at least 2 episodes.")
    mean = float(contributions.mean())
    deviations = contributions - mean
    if leverage is not None:
        deviations = deviations / (1 - leverage)
        deviations -= deviations.mean()
    scale = np.abs(deviations).max()
    if scale <= 1e-12 * max(abs(mean), 1e-300):  # equal but for rounding
        return mean, mean
    deviations = deviations / scale
    statistics = _t_statistics(deviations, replicates, seed)
    symmetric = max(
        float(np.quantile(np.abs(statistics), confidence)),
        student_quantile(confidence, episodes - 1),
    )
    tails = np.quantile(statistics, [(1 - confidence) / 2, (1 + confidence) / 2])
    error = scale * np.sqrt(deviations @ deviations / (episodes * (episodes - 1)))
    below, above = max(symmetric, tails[1]), max(symmetric, -tails[0])
    return mean - float(below * error), mean + float(above * error)


def _t_statistics(deviations: Floats, replicates: int, seed: int) -> Floats:
    """Mean over standard error in resampled episodes.

    The error of a replicate is at least `LEAST_ERROR` of the sample's. Where one episode makes up most of the spread,
    replicates without it would have hardly any.
    """
    episodes = len(deviations)
    rng = np.random.default_rng(seed)
    parts = []
    rows = max(1, CHUNK // episodes)
    for begin in range(0, replicates, rows):
        drawn = deviations[rng.integers(episodes, size=(min(rows, replicates - begin), episodes))]
        parts.append((drawn.mean(1), drawn.std(1, ddof=1)))
    means, spreads = np.concatenate(parts, axis=1)
    floor = LEAST_ERROR * float(deviations.std(ddof=1))
    statistics: Floats = means * np.sqrt(episodes) / np.maximum(spreads, floor)
    return statistics


def student_quantile(confidence: float, freedom: int) -> float:
    """Two-sided quantile of Student's t by the expansion of Fisher and Cornish, within 1 % from 3 degrees on.

    1 and 2 degrees of freedom are exact.
    """
    if freedom == 1:
        return float(np.tan(np.pi * confidence / 2))
    if freedom == 2:
        return float(confidence * np.sqrt(2 / (1 - confidence**2)))
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92_160,
    )
    return sum(term / freedom**power for power, term in enumerate(terms))


def replicate_margin(replicates: Floats, confidence: float) -> float:
    """Half width of an interval around the mean of bootstrap replicates, too few for their quantiles.

    That mean varies by itself, because the replicates are few. On 2,000 logs of a tabular problem the exact solution
    with 10 replicates covers 88.6 % (at 90 %), and without this term 86.9 %.
    """
    spread = float(replicates.std(ddof=1)) * (1 + 1 / len(replicates)) ** 0.5
    return student_quantile(confidence, len(replicates) - 1) * spread
