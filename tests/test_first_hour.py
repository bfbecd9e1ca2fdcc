"""Mistakes of a first hour get a sentence that says what to write instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import rl_training
from rl_training import SAC, TD3BC, Callback, TrainConfig
from rl_training.config import CheckpointError, ConfigError

# -- Stable-Baselines3 from memory ---------------------------------------------------------------


def test_a_policy_name_and_an_environment_are_answered_with_a_configuration() -> None:
    expected = r"SAC\(TrainConfig\(algo='sac', env_id='Pendulum-v1'"
    with pytest.raises(ConfigError, match=expected):
        SAC("MlpPolicy", "Pendulum-v1", verbose=1)
    with pytest.raises(ConfigError, match=expected):
        SAC("MlpPolicy", env=gym.make("Pendulum-v1"))
    with pytest.raises(ConfigError, match="options go into its algo_kwargs"):
        SAC(TrainConfig(algo="sac", env_id="Pendulum-v1"), learning_rate=1e-3)


def test_a_budget_by_position_is_answered_with_its_name() -> None:
    algorithm = SAC(TrainConfig(algo="sac", env_id="Pendulum-v1"))
    with pytest.raises(ConfigError, match=r"learn\(total_timesteps=10000\)"):
        algorithm.learn(10_000)


# -- Python --------------------------------------------------------------------------------------


class Quiet(Callback):
    pass


@pytest.mark.parametrize(
    ("callbacks", "advice"),
    [
        ([Quiet], r"Quiet is a class; pass an instance: Quiet\(...\)"),
        (Quiet(), r"must be a list: callbacks=\[Quiet\(...\)\]"),
        ([print], "is not a rl_training.Callback"),
    ],
)
def test_what_is_no_callback_is_refused_before_anything_is_loaded(
    callbacks: Any, advice: str, small_config: Any, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=advice):
        TD3BC(small_config(output_dir=str(tmp_path / "runs"))).learn(callbacks=callbacks)
    assert not (tmp_path / "runs").exists()


def test_load_takes_a_checkpoint_of_any_algorithm(small_config: Any) -> None:
    result = TD3BC(small_config()).learn()
    loaded = rl_training.load(result.run_dir)
    assert type(loaded) is TD3BC
    obs = np.zeros(loaded._policy.spec.obs_dim)
    assert np.array_equal(loaded.predict(obs), TD3BC.load(result.run_dir).predict(obs))
    with pytest.raises(CheckpointError, match=r"rl_training.load\(path\) takes any"):
        SAC.load(result.run_dir)
