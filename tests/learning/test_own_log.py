"""Defaults learn from a log with columns of very different scale, and a run that does not says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.hvac import Heating, HeatingPower, write_log
from rl_training.experiment import load_config
from rl_training.runtime import TrainResult, train

CONTINUOUS = ("td3_bc", "rebrac")


def learn(algo: str, directory: Path, **overrides: Any) -> tuple[float, TrainResult]:
    """Train on the thermostat's log; returns its mean return and the result."""
    env: Any = HeatingPower() if algo in CONTINUOUS else Heating()
    behaviour = write_log(directory / "log.npz", env, rows=4_800)
    options = {
        "env_id": f"benchmarks.hvac:{type(env).__name__}",
        "dataset_path": str(directory / "log.npz"),
        "output_dir": str(directory / "runs"),
        "eval_interval": 100_000,
        "log_interval": 100,
        **overrides,
    }
    return behaviour, train(load_config(f"{algo}/own-log", options))


def test_iql_needs_its_default_of_normalised_observations(tmp_path: Path) -> None:
    small = {"total_timesteps": 200, "hidden_sizes": [64, 64], "learning_rate": 1e-3}
    behaviour, result = learn("iql", tmp_path, **small)
    assert result.metrics["eval/return_mean"] > behaviour
    assert not result.warnings
    behaviour, result = learn("iql", tmp_path, normalize_observations=False, **small)
    assert result.metrics["eval/return_mean"] < 2 * behaviour
    texts = " ".join(result.warnings)
    assert "observation column 3 is about 1.01e+05" in texts
    assert "less than the log itself" in texts


@pytest.mark.slow
@pytest.mark.parametrize("algo", ["bc", "td3_bc", "iql", "cql", "awac", "crr", "rebrac"])
def test_presets_beat_the_logged_behaviour(algo: str, tmp_path: Path) -> None:
    behaviour, result = learn(algo, tmp_path, total_timesteps=2_000, seed=1)
    assert result.metrics["eval/return_mean"] > behaviour
    assert not result.warnings
