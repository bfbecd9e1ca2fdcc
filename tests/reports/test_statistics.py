"""Statistics over seeds agree with rliable, and say nothing that one seed cannot say."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_training.reports.reference_scores import reference_remark, reference_scores
from rl_training.reports.statistics import (
    difference_interval,
    improvement_interval,
    iqm,
    mean_band,
    performance_profile,
    permutation_test,
    probability_of_improvement,
    summarize,
)


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    """Outputs of rliable; `tests/fixtures/record_rliable.py` made them."""
    facts = json.loads((Path(__file__).parents[1] / "fixtures" / "rliable.json").read_text())
    return {
        key: np.array(value) if isinstance(value, list) else value for key, value in facts.items()
    }


def test_aggregates_are_those_of_rliable(recorded: dict[str, Any]) -> None:
    over_tasks = summarize(list(recorded["x"].T))
    first_task = summarize([recorded["x"][:, 0]])
    for summary, expected in ((over_tasks, recorded), (first_task, recorded["first_task"])):
        assert summary.mean == pytest.approx(expected["mean"], rel=1e-12)
        assert summary.iqm == pytest.approx(expected["iqm"], rel=1e-12)
        # Monte-Carlo error: four standard errors of a quantile of ten thousand resamples
        error = 4 * 0.027 * np.ptp(expected["mean_interval"]) / 4
        assert summary.mean_interval == pytest.approx(expected["mean_interval"], abs=error)
        assert summary.iqm_interval == pytest.approx(expected["iqm_interval"], abs=2 * error)
    assert first_task.std == pytest.approx(np.std(recorded["x"][:, 0], ddof=1))


def test_probability_of_improvement_is_that_of_rliable(recorded: dict[str, Any]) -> None:
    x, y = list(recorded["x"].T), list(recorded["y"].T)
    assert probability_of_improvement(x, y) == pytest.approx(recorded["improvement"], rel=1e-12)
    assert improvement_interval(x, y) == pytest.approx(recorded["improvement_interval"], abs=0.02)
    assert probability_of_improvement(x, x) == 0.5


def test_performance_profiles_are_those_of_rliable(recorded: dict[str, Any]) -> None:
    x, thresholds = list(recorded["x"].T), recorded["thresholds"]
    np.testing.assert_array_equal(performance_profile(x, thresholds), recorded["profile"])
    band = mean_band([(task[:, None] > thresholds).astype(float) for task in x])
    # a run more or less of 21 is 0.048
    np.testing.assert_allclose(band, recorded["profile_interval"], atol=0.048)


@pytest.mark.parametrize(("number", "cut"), [(1, 0), (3, 0), (4, 1), (7, 1), (8, 2)])
def test_a_quarter_is_left_out_at_each_end(number: int, cut: int) -> None:
    scores = np.arange(number) ** 2.0
    assert iqm(scores[::-1]) == scores[cut : number - cut].mean()


def test_one_seed_has_no_interval() -> None:
    summary = summarize([np.array([3.0])])
    assert (summary.n, summary.mean, summary.iqm) == (1, 3.0, 3.0)
    assert summary.std is summary.mean_interval is summary.iqm_interval is None
    one, two = [np.array([3.0])], [np.array([1.0, 2.0])]
    assert improvement_interval(one, two) is None
    assert difference_interval(one, two) is None
    assert mean_band([np.array([[1.0, 2.0]])]) is None


def test_intervals_are_repeatable_and_of_the_given_confidence() -> None:
    scores = [np.random.default_rng(0).normal(size=20)]
    wide, narrow = summarize(scores), summarize(scores, confidence=0.5)
    assert wide == summarize(scores)
    assert wide.mean_interval is not None
    assert narrow.mean_interval is not None
    error = float(scores[0].std() / 20**0.5)  # of a normal mean: 1.96 and 0.674 errors
    assert np.ptp(wide.mean_interval) == pytest.approx(2 * 1.96 * error, rel=0.06)
    assert np.ptp(narrow.mean_interval) == pytest.approx(2 * 0.674 * error, rel=0.06)


def test_scores_that_are_not_finite_give_no_interval() -> None:
    for value in (np.nan, np.inf):
        summary = summarize([np.array([1.0, value, 2.0])])
        assert not np.isfinite(summary.mean)
        assert np.isnan(summary.iqm)
        assert summary.mean_interval is summary.iqm_interval is None


@pytest.mark.parametrize(
    ("env_id", "score", "normalised"),
    [("Hopper-v2", 3234.3, 100.0), ("Hopper-v5", -20.272305, 0.0), ("antmaze-umaze-v2", 0.5, 50.0),
     ("halfcheetah-medium-expert-v2", 12135.0, 100.0), ("AdroitHandDoor-v1", 2880.5693087298737, 100.0)],
)  # fmt: skip
def test_scores_are_normalised_as_d4rl_does(env_id: str, score: float, normalised: float) -> None:
    reference = reference_scores(env_id)
    assert reference is not None
    assert reference.normalise(score) == pytest.approx(normalised)


def test_where_reference_scores_do_not_apply_is_said() -> None:
    assert reference_scores("Pendulum-v1") is reference_scores(None) is None
    assert reference_scores("Hopper-v55") is reference_scores("my:Hopper-v4") is None
    assert "version 2, which differs" in (reference_remark("Hopper-v4") or "")
    assert reference_remark("Hopper-v2") is None


def test_many_seeds_take_little_memory() -> None:
    x, y = np.random.default_rng(0).standard_normal((2, 600))
    tracemalloc.start()
    try:
        assert improvement_interval([x], [y]) is not None
        assert permutation_test([x], [y]) > 0
        assert mean_band([x[:, None]]) is not None
        assert (
            tracemalloc.get_traced_memory()[1] < 100e6
        )  # pairs of all resamples would take gigabytes
    finally:
        tracemalloc.stop()
