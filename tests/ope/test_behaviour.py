"""Probabilities of the logging policy: from the log, or fitted out of sample with their calibration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rl_training.data import TransitionDataset
from rl_training.ope.behaviour import BehaviourProbabilities, behaviour_probabilities
from rl_training.ope.calibration import choice_calibration, density_calibration, is_calibrated
from rl_training.ope.judged_log import JudgedLog
from rl_training.runtime.config.train_config import TrainConfig
from rl_training.runtime.prepare import prepare

ROWS = 2_000


def _dataset(actions: NDArray[Any], obs: NDArray[Any], **extra: Any) -> TransitionDataset:
    ends = np.arange(1, len(obs) + 1) % 20 == 0
    fields = {
        "obs": obs.astype(np.float32), "actions": actions, "rewards": np.ones(len(obs)),
        "next_obs": obs.astype(np.float32) + 1, "terminations": ends,
        "truncations": np.zeros(len(obs)), **extra,
    }  # fmt: skip
    return TransitionDataset.from_dict(fields)


def _probabilities(
    dataset: TransitionDataset, tmp_path: Path, bound: float = 2.0, **options: Any
) -> BehaviourProbabilities:
    bounds = {} if dataset.discrete else {"action_low": -bound, "action_high": bound}
    config = TrainConfig(algo="bc", algo_kwargs=bounds)
    return behaviour_probabilities(
        JudgedLog(dataset, 0.9), prepare(config, dataset), tmp_path, **{"updates": 400, **options}
    )


def test_densities_of_the_log_are_taken_in_units_of_the_policy(tmp_path: Path) -> None:
    """In [-1, 1] an action of [-2, 2] has twice the density."""
    rng = np.random.default_rng(0)
    dataset = _dataset(
        rng.uniform(-2, 2, (40, 1)), rng.normal(size=(40, 2)), propensity=np.full(40, 0.25)
    )
    result = _probabilities(dataset, tmp_path)
    assert result.source == "log"
    assert result.calibrated
    np.testing.assert_allclose(result.log_probs, np.log(0.5), rtol=1e-6)
    assert not list(tmp_path.iterdir())


def test_fitted_choices_have_the_probabilities_of_the_behaviour(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(ROWS, 2))
    chance = 1 / (1 + np.exp(-2 * obs[:, 0]))
    choices = (rng.random(ROWS) < chance).astype(np.int64)
    result = _probabilities(_dataset(choices, obs), tmp_path)
    true = np.where(choices == 1, chance, 1 - chance)
    assert np.abs(np.exp(result.log_probs) - true).mean() < 0.05
    assert result.source == "fitted model"
    assert result.calibrated, result.calibration
    assert (
        result.calibration["log_likelihood"] > result.calibration["marginal_log_likelihood"] + 0.1
    )

    runs = sorted(tmp_path.rglob("result.json"))
    again = _probabilities(_dataset(choices, obs), tmp_path)
    assert np.array_equal(again.log_probs, result.log_probs)
    assert sorted(tmp_path.rglob("result.json")) == runs, "the finished fits are taken"


def test_fitted_densities_are_calibrated_or_say_that_they_are_not(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(ROWS, 2))
    mean = np.tanh(obs[:, :1])
    gaussian = (mean + 0.3 * rng.normal(size=(ROWS, 1))).clip(-2, 2)
    result = _probabilities(_dataset(gaussian, obs), tmp_path)
    assert result.calibrated, result.calibration
    residual = (gaussian - mean)[:, 0] / 0.3
    true = -(residual**2) / 2 - np.log(0.3 * np.sqrt(2 * np.pi)) + np.log(2)  # in units of [-1, 1]
    assert np.abs(result.log_probs - true).mean() < 0.2
    two_modes = 1.5 * rng.choice([-1.0, 1.0], (ROWS, 1)) + 0.1 * rng.normal(size=(ROWS, 1))
    result = _probabilities(_dataset(two_modes.clip(-2, 2), obs), tmp_path)
    assert not result.calibrated, result.calibration


def test_a_model_of_other_bounds_is_not_taken(tmp_path: Path) -> None:
    """Bounds of a policy that was trained without an environment may differ from those of another one."""
    rng = np.random.default_rng(0)
    dataset = _dataset(rng.uniform(-2, 2, (80, 1)), rng.normal(size=(80, 2)))
    alone = _probabilities(dataset, tmp_path / "alone", bound=4.0, updates=20)
    _probabilities(dataset, tmp_path / "shared", bound=2.0, updates=20)
    after = _probabilities(dataset, tmp_path / "shared", bound=4.0, updates=20)
    np.testing.assert_array_equal(after.log_probs, alone.log_probs)


def test_noise_is_not_taken_for_knowledge(tmp_path: Path) -> None:
    """A model that was judged on its own rows would beat the marginal one by far."""
    rng = np.random.default_rng(0)
    dataset = _dataset(rng.integers(4, size=200), rng.normal(size=(200, 20)))
    result = _probabilities(dataset, tmp_path, updates=200)
    assert (
        result.calibration["log_likelihood"] < result.calibration["marginal_log_likelihood"] + 0.02
    )


def test_calibration_numbers_are_those_of_their_definitions() -> None:
    probabilities = np.array([[0.85, 0.15], [0.85, 0.15], [0.25, 0.75], [0.25, 0.75]])
    numbers = choice_calibration(probabilities, np.array([0, 1, 1, 1]))
    # bin of 0.85: right in 1 of 2; bin of 0.75: right in 2 of 2
    assert numbers["expected_calibration_error"] == pytest.approx((2 * 0.35 + 2 * 0.25) / 4)
    brier = (2 * 0.15**2 + 2 * 0.85**2 + 2 * (2 * 0.25**2)) / 4
    assert numbers["brier_score"] == pytest.approx(brier)

    normal = np.random.default_rng(0).normal(size=(20_000, 2))
    numbers = density_calibration(normal)
    assert numbers == pytest.approx(
        {"coverage_50": 0.5, "coverage_90": 0.9, "pit_distance": 0.0}, abs=0.02
    )
    assert density_calibration(normal + np.array([0.0, 5.0]))["pit_distance"] > 0.9
    likelihoods = {"log_likelihood": -1.0, "marginal_log_likelihood": -1.0}
    assert is_calibrated(likelihoods | numbers)
    assert not is_calibrated(likelihoods | density_calibration(normal / 3))
    assert not is_calibrated(likelihoods | {"log_likelihood": -1.1} | numbers)
