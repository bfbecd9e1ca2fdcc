"""Mistakes of a first hour get a sentence that says what to write instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import rl_training
from rl_training import SAC, TD3BC, Callback, TrainConfig
from rl_training.cli.main import main
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


# -- the command line ----------------------------------------------------------------------------


def test_a_directory_of_runs_stands_for_its_newest_run(
    small_config: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    older, newer = (TD3BC(small_config(seed=seed)).learn() for seed in (1, 2))
    parent = older.run_dir.parent
    actions = []
    for path in (older.run_dir, newer.run_dir, parent):
        assert main(["predict", str(path), "--obs", "[0.5, 0.1, 0.2]"]) == 0
        captured = capsys.readouterr()
        actions.append(captured.out)
    assert actions[2] == actions[1] != actions[0]
    assert f"{parent} has 2 runs; taking the newest, {newer.run_dir}" in captured.err
    assert main(["resume", str(parent), "--total-timesteps", "50", "--quiet"]) == 0
    assert (newer.run_dir / "checkpoints" / "step_50").exists()
    assert rl_training.load(parent).config.seed == 2
