"""Bootstrap intervals over episodes."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# entries of the matrix of counts that are in memory at a time
CHUNK = 4_000_000


def bootstrap_interval(
    contributions: Floats,
    confidence: float,
    *,
    leverage: Floats | None = None,
    replicates: int = 2000,
    seed: int = 0,
) -> tuple[float, float]:
    """Symmetric bootstrap-t interval of the mean of `contributions`, one per episode.

    `leverage` is the share of each episode in the weights of a self-normalised estimator. Deviations are divided
    by 1 - leverage, as the jackknife does: linearisation alone understates the influence of a heavy episode.

    Chosen by coverage over 1,000 logs of 100 episodes of a tabular problem, 90 % intervals. The effective sample size
    was 85, 55 and 27 in the three columns:

    | interval                | near: `is`, `wis`, `wdr` | further        | far            |
    |-------------------------|--------------------------|----------------|----------------|
    | percentile              | 89, 89, 89               | 83, 87, 89     | 73, 79, 87     |
    | BCa                     | 88, 88, 88               | 84, 84, 86     | 77, 80, 81     |
    | bootstrap-t             | 90, 89, 90               | 87, 86, 88     | 79, 77, 84     |
    | symmetric bootstrap-t   | 90, 90, 89               | 87, 89, 90     | 77, 81, 87     |
    | the same, with leverage | 90, 90, 90               | 87, 90, 90     | 77, 84, 90     |
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
    statistics = np.abs(_t_statistics(deviations, replicates, seed))
    error = scale * np.sqrt(deviations @ deviations / (episodes * (episodes - 1)))
    margin = float(np.quantile(statistics, confidence) * error)
    return mean - margin, mean + margin


def _t_statistics(deviations: Floats, replicates: int, seed: int) -> Floats:
    """Mean over standard error in resampled episodes; replicates of equal values have no error and are left out."""
    episodes = len(deviations)
    rng = np.random.default_rng(seed)
    moments = np.stack([deviations, deviations**2], axis=1)
    parts = []
    rows = max(1, CHUNK // episodes)
    for begin in range(0, replicates, rows):
        size = min(rows, replicates - begin)
        counts = rng.multinomial(episodes, np.full(episodes, 1 / episodes), size=size)
        parts.append(counts @ moments / episodes)
    means, squares = np.concatenate(parts).T
    variances = squares - means**2
    varied = variances > 1e-12 * squares
    statistics: Floats = means[varied] / np.sqrt(variances[varied] / (episodes - 1))
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
    """Half width of an interval from bootstrap replicates that are too few for their quantiles."""
    spread = float(replicates.std(ddof=1))
    return student_quantile(confidence, len(replicates) - 1) * spread
