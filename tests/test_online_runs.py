"""Online runs: exact resume from any tick, and environments that misbehave."""

from __future__ import annotations

import importlib.util
import json
import logging
import random
from pathlib import Path
from typing import Any

import pytest

from rl_training.cli.main import main
from rl_training.config import ConfigError, EnvError, RunError
from rl_training.data import load_transition_dataset
from rl_training.runs.layout import step_directories
from rl_training.runtime import TrainConfig, resume, train
from tests.support.runs import assert_same_run, killed_run

needs_mujoco = pytest.mark.skipif(
    importlib.util.find_spec("mujoco") is None, reason="needs the extra mujoco"
)


@pytest.fixture
def config(tmp_path: Path) -> Any:
    def make(algo: str = "sac", **changes: Any) -> TrainConfig:
        kwargs = {
            "hidden_sizes": [8, 8],
            "batch_size": 8,
            "learning_starts": 13,
            "buffer_capacity": 50,  # the ring goes round
            "eval_interval": 25,
            **changes.pop("algo_kwargs", {}),
        }
        values = {
            "algo": algo,
            "env_id": "CartPole-v1" if algo == "dqn" else "Pendulum-v1",
            "env_kwargs": {"max_episode_steps": 17},
            "total_timesteps": 90,
            "eval_episodes": 1,
            "log_interval": 7,
            "checkpoint_interval": 20,
            "output_dir": str(tmp_path / "runs"),
            **changes,
        }
        return TrainConfig(**values, algo_kwargs=kwargs)

    return make


MANY = {"n_step": 3, "gradient_updates_per_step": 2, "train_frequency": 2}
CASES: dict[str, dict[str, Any]] = {
    "three environments": {"num_envs": 3, "algo_kwargs": MANY},
    "processes": {"num_envs": 2, "algo_kwargs": {"vector_env": "async"}},
    "discrete sac": {"env_id": "CartPole-v1"},
    "prioritised": {
        "algo": "dqn",
        "algo_kwargs": {"prioritized": True, "n_step": 2, "dueling": True, "train_frequency": 1},
    },
    "joint updates": {"algo": "redq", "algo_kwargs": {"gradient_updates_per_step": 3}},
    "one environment": {"algo": "td3"},
    "rewards shaped": {"env_kwargs": {"wrappers": {"reward": {"scale": 0.1}}}},
}


@pytest.mark.parametrize("case", CASES)
def test_killed_at_any_tick_and_resumed_is_the_uninterrupted_run(case: str, config: Any) -> None:
    changes = dict(CASES[case])
    settings = config(changes.pop("algo", "sac"), **changes)
    whole = train(settings)
    run_dir = killed_run(settings, tick=random.Random(case).randrange(25, 60))
    again = resume(run_dir)
    assert again.run_dir == run_dir
    assert_same_run(whole.run_dir, run_dir)


@needs_mujoco
@pytest.mark.parametrize("env_id", ["InvertedPendulum-v5", "HalfCheetah-v5"])
def test_mujoco_runs_go_on_in_the_middle_of_an_episode(env_id: str, config: Any) -> None:
    settings = config(env_id=env_id, env_kwargs={}, num_envs=2)
    whole = train(settings)
    run_dir = killed_run(settings, tick=71)
    resume(run_dir)
    assert_same_run(whole.run_dir, run_dir)


def test_a_longer_run_is_the_run_from_the_start(config: Any) -> None:
    """The budget ends a step only after its updates, so nothing is left out at the seam."""
    options = {"gradient_updates_per_step": 2, "learning_rate_schedule": {"kind": "constant"}}
    whole = train(config(total_timesteps=100, algo_kwargs=options))
    first = train(config(total_timesteps=50, algo_kwargs=options))
    resume(first.run_dir, total_timesteps=100)
    assert_same_run(whole.run_dir, first.run_dir)


def test_only_the_two_newest_checkpoints_keep_the_replay(
    config: Any, caplog: pytest.LogCaptureFixture
) -> None:
    result = train(config())
    steps = step_directories(result.run_dir / "checkpoints")
    assert [path for path in steps if (path / "replay").exists()] == steps[-2:]
    with caplog.at_level(logging.WARNING, "rl_training"):
        branched = resume(steps[0])
    assert "replay of this checkpoint is gone" in caplog.text
    assert branched.run_dir != result.run_dir
    assert branched.stop_reason == "total_timesteps"


def test_an_environment_that_is_not_deterministic_starts_anew_and_says_so(
    config: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings = config(env_id="tests.support.envs:RestlessEnv", env_kwargs={}, num_envs=2)
    run_dir = killed_run(settings, tick=60)
    with caplog.at_level(logging.WARNING, "rl_training"):
        result = resume(run_dir)
    assert "does not come out the same" in caplog.text
    assert result.stop_reason == "total_timesteps"


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("raise", "FailingEnv failed: RuntimeError: the motor is stuck"),
        ("nan observation", "the observation is nan at step"),
        ("nan reward", "the reward is nan at step"),
    ],
)
def test_a_failing_environment_ends_the_run_with_a_checkpoint(
    how: str, message: str, config: Any
) -> None:
    settings = config(
        env_id="tests.support.envs:FailingEnv",
        env_kwargs={"how": how, "evaluation": {"after": 10**9}},
        checkpoint_interval=1_000,
        eval_episodes=0,
    )
    with pytest.raises(RunError, match=message) as caught:
        train(settings)
    (run_dir,) = Path(settings.output_dir).glob("*")
    assert f"rl-training resume {run_dir}" in str(caught.value)
    saved = json.loads((run_dir / "checkpoints/last/manifest.json").read_text())
    assert saved["progress"]["global_step"] == 24
    with pytest.raises(RunError, match="step 48 is saved"):  # it fails again, 24 steps later
        resume(run_dir)


@pytest.mark.parametrize(
    ("how", "message"), [("raise", "the motor is stuck"), ("die", "process of environment . died")]
)
def test_a_failing_process_is_reported_and_not_waited_for(
    how: str, message: str, config: Any
) -> None:
    settings = config(
        env_id="tests.support.envs:FailingEnv",
        env_kwargs={"how": how},
        eval_episodes=0,
        num_envs=2,
        algo_kwargs={"vector_env": "async"},
    )
    with pytest.raises(RunError, match=message):
        train(settings)
    (run_dir,) = Path(settings.output_dir).glob("*")
    assert (run_dir / "checkpoints/last/manifest.json").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"env_id": None}, "env_id: is required: sac collects data in it"),
        ({"num_envs": 0}, "num_envs: must be >= 1"),
        ({"algo_kwargs": {"buffer_capacity": 7}}, "must be >= batch_size, which is 8"),
        ({"num_envs": 60}, "must be >= num_envs, which is 60"),
        ({"algo_kwargs": {"prioritized": True}}, "sac draws uniformly .for dqn only"),
        ({"algo_kwargs": {"priority_exponent": 0.5}}, "no effect without prioritized"),
        ({"algo_kwargs": {"max_epochs": 3}}, "counts passes over a dataset"),
        ({"algo_kwargs": {"dataset_kind": "random"}}, "but sac collects its own data"),
        ({"algo_kwargs": {"buffer_size": 100}}, "another name of buffer_capacity"),
        ({"algo_kwargs": {"learnin_starts": 1}}, "did you mean 'learning_starts'"),
        ({"algo_kwargs": {"n_step": 0}}, "n_step: must be >= 1"),
        ({"algo_kwargs": {"regime": "offline"}}, "sac does not train offline"),
    ],
)
def test_wrong_settings_are_named(changes: dict[str, Any], message: str, config: Any) -> None:
    with pytest.raises(ConfigError, match=message):
        config(**changes)


def test_collecting_options_are_refused_offline() -> None:
    with pytest.raises(ConfigError, match="but bc trains on logged data alone"):
        TrainConfig(algo="bc", algo_kwargs={"learning_starts": 5})


def test_other_spellings_are_the_same_options(config: Any) -> None:
    spelt = TrainConfig(
        algo="sac",
        env_id="Pendulum-v1",
        algo_kwargs={"buffer_size": 500, "train_freq": 2, "gradient_steps": 3, "ent_coef": 0.2},
    )
    assert spelt.groups.replay.buffer_capacity == 500
    assert spelt.groups.replay.train_frequency == 2
    assert spelt.groups.replay.gradient_updates_per_step == 3
    assert spelt.algo_kwargs["alpha"] == 0.2


@pytest.mark.parametrize(
    ("algo", "env_id", "message"),
    [
        ("td3", "CartPole-v1", "td3 needs continuous actions, but the actions of CartPole-v1"),
        ("dqn", "Pendulum-v1", "dqn needs discrete actions, but the actions of Pendulum-v1"),
        ("sac", "Blackjack-v1", "observations"),
    ],
)
def test_spaces_that_do_not_fit_are_refused_before_anything_is_written(
    algo: str, env_id: str, message: str, config: Any
) -> None:
    settings = config(algo, env_id=env_id, env_kwargs={})
    with pytest.raises(EnvError, match=message):
        train(settings)
    assert not Path(settings.output_dir).exists()


@pytest.mark.parametrize("algo", ["sac", "dqn"])
def test_a_runs_replay_becomes_a_dataset(
    algo: str, config: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"exploration_fraction": 1.0} if algo == "dqn" else {}
    run_dir = train(config(algo, num_envs=2, algo_kwargs=options)).run_dir
    target = tmp_path / "log.npz"
    assert main(["data", "collect", "--from-run", str(run_dir), "-o", str(target)]) == 0
    assert "50 transitions" in capsys.readouterr().out
    assert main(["data", "check", str(target)]) == 0
    log = load_transition_dataset("npz", dataset_path=str(target))
    assert log.boundaries == "given"
    learner = "td3_bc" if algo == "sac" else "cql"
    offline = TrainConfig(
        algo=learner,
        env_id=config(algo).env_id,
        total_timesteps=3,
        eval_episodes=0,
        output_dir=str(tmp_path / "offline"),
        algo_kwargs={"dataset_kind": "npz", "dataset_path": str(target), "batch_size": 4},
    )
    assert train(offline).stop_reason == "total_timesteps"
    assert main(["data", "collect", "--from-run", str(run_dir), "--seed", "3", "-o", "x.npz"]) == 2


def test_offline_runs_have_no_replay(pendulum_config: Any, capsys: Any) -> None:
    run_dir = train(pendulum_config()).run_dir
    assert main(["data", "collect", "--from-run", str(run_dir), "-o", "x.npz"]) == 2
    assert "holds no replay" in capsys.readouterr().err


def test_a_run_without_updates_says_so_and_reports_what_it_collected(
    config: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "rl_training"):
        result = train(config(algo_kwargs={"learning_starts": 1_000}, log_interval=1_000))
    assert "learning_starts is 1000 and total_timesteps 90" in caplog.text
    assert result.metrics["rollout/episodes"] == 90 // 17
    rows = (result.run_dir / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(row)["step"] for row in rows if "rollout/episodes" in row] == [90]
