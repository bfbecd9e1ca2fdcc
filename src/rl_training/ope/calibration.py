"""Calibration of a behaviour model on rows that it was not fitted to, as plain numbers."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from rl_training.ope.judged_log import Numbers

BINS = 10
# a model is calibrated if it is no worse than one that does not see the state, and within these
WORST_LIKELIHOOD = -0.02  # nats per row below the marginal model
WORST_CALIBRATION_ERROR = 0.1
WORST_COVERAGE_ERROR = 0.1  # of central 50 % and 90 % intervals
WORST_PIT_DISTANCE = 0.1


def choice_calibration(probabilities: Numbers, choices: NDArray[np.int64]) -> dict[str, float]:
    """Expected calibration error of the likeliest choice, in 10 bins, and Brier score.

    `probabilities` is (rows, choices) of the model, `choices` (rows,) what was logged.
    """
    rows = np.arange(len(choices))
    likeliest = probabilities.argmax(1)
    confidence = probabilities[rows, likeliest]
    right = (likeliest == choices).astype(np.float64)
    bins = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    gaps = np.bincount(bins, confidence - right, BINS)
    logged = probabilities[rows, choices]
    brier = (probabilities**2).sum(1) - 2 * logged + 1
    return {
        "expected_calibration_error": float(np.abs(gaps).sum() / len(choices)),
        "brier_score": float(brier.mean()),
    }


def density_calibration(standardised: Numbers) -> dict[str, float]:
    """Coverage of central intervals and distance of the probability-integral transform to the uniform distribution.

    `standardised` is (rows, dimensions): (action - mean) / deviation of a Gaussian model. Coverages are means over
    dimensions; the Kolmogorov distance is that of the worst dimension.
    """
    size = np.abs(standardised)
    transformed = np.sort(_normal_cdf(standardised), axis=0)
    steps = np.arange(len(standardised) + 1)[:, None] / len(standardised)
    above, below = steps[1:] - transformed, transformed - steps[:-1]
    return {
        "coverage_50": float((size <= 0.6744897501960817).mean()),
        "coverage_90": float((size <= 1.6448536269514722).mean()),
        "pit_distance": float(np.maximum(above, below).max()),
    }


def is_calibrated(numbers: dict[str, float]) -> bool:
    """Compare the numbers that there are with their thresholds."""
    gain = numbers["log_likelihood"] - numbers["marginal_log_likelihood"]
    return (
        gain >= WORST_LIKELIHOOD
        and numbers.get("expected_calibration_error", 0.0) <= WORST_CALIBRATION_ERROR
        and abs(numbers.get("coverage_50", 0.5) - 0.5) <= WORST_COVERAGE_ERROR
        and abs(numbers.get("coverage_90", 0.9) - 0.9) <= WORST_COVERAGE_ERROR
        and numbers.get("pit_distance", 0.0) <= WORST_PIT_DISTANCE
    )


_erf = np.vectorize(math.erf, otypes=[np.float64])


def _normal_cdf(values: Numbers) -> Numbers:
    result: Numbers = 0.5 * (1 + _erf(values / math.sqrt(2)))
    return result
