"""Discrete actions: from the log or the environment to a policy that chooses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rl_training import BC, TrainConfig
from rl_training.api import algorithm as managed
from rl_training.cli.main import main
from rl_training.config import ConfigError, DatasetError
from rl_training.data import TransitionDataset
from tests.support.data import make_fields


def choices(count: int = 3, rows: int = 400) -> dict[str, Any]:
    """The choice is the sign of the first observation: easy to clone."""
    fields = make_fields(rows)
    fields["actions"] = np.digitize(fields["obs"][:, 0], np.linspace(-0.5, 0.5, count - 1))
    return fields


def config(tmp_path: Path, **changes: Any) -> TrainConfig:
    options = {"hidden_sizes": [16], "learning_rate": 1e-2, **changes.pop("algo_kwargs", {})}
    values = {"algo": "bc", "total_timesteps": 300, "output_dir": str(tmp_path), **changes}
    return TrainConfig(**values, algo_kwargs=options)


def test_choices_of_a_log_are_cloned_without_an_environment(tmp_path: Path) -> None:
    fields = choices()
    algorithm = BC(config(tmp_path))
    algorithm.learn(dataset=TransitionDataset.from_dict(fields))
    predicted = algorithm.predict(fields["obs"])
    assert predicted.dtype == np.int64
    assert np.mean(predicted == fields["actions"]) > 0.9
    assert algorithm.predict(fields["obs"][0]).shape == ()
    again = BC.load(algorithm.save(tmp_path / "policy"))
    assert np.array_equal(again.predict(fields["obs"]), predicted)


def test_cartpole_trains_evaluates_and_predicts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cartpole.yaml").write_text(
        "algo: bc\nenv_id: CartPole-v1\ntotal_timesteps: 30\neval_episodes: 2\n"
        "algo_kwargs: {dataset_kind: random, dataset_size: 200, hidden_sizes: [8]}\n"
    )
    assert main(["train", "cartpole.yaml", "-q"]) == 0
    (run_dir,) = Path("runs").glob("*")
    capsys.readouterr()
    assert main(["predict", str(run_dir), "--obs", "[0, 0, 0.1, 0]"]) == 0
    assert capsys.readouterr().out.strip() in ("0", "1")
    assert main(["eval", str(run_dir), "--episodes", "2"]) == 0
    assert (
        main(["data", "collect", "--checkpoint", str(run_dir), "--steps", "50", "-o", "c.npz"]) == 0
    )


class FromFive(gym.Env[Any, Any]):
    """Choices are 5, 6 and 7."""

    observation_space = gym.spaces.Box(-9, 9, (3,))
    action_space = gym.spaces.Discrete(3, start=5)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        return np.ones(3, np.float32), float(action), True, False, {}


@pytest.fixture
def _registered() -> Any:
    gym.register("TestFromFive-v0", FromFive)
    yield
    gym.registry.pop("TestFromFive-v0")


@pytest.mark.usefixtures("_registered")
def test_choices_that_do_not_start_at_zero_are_shifted(tmp_path: Path) -> None:
    algorithm = BC(config(tmp_path, env_id="TestFromFive-v0", eval_episodes=1, total_timesteps=50))
    algorithm.learn(dataset=TransitionDataset.from_dict(choices(3)))
    assert set(algorithm.predict(choices()["obs"]).tolist()) <= {5, 6, 7}


@pytest.mark.usefixtures("_registered")
def test_choice_that_the_environment_does_not_have_is_named(tmp_path: Path) -> None:
    algorithm = BC(config(tmp_path, env_id="TestFromFive-v0"))
    with pytest.raises(DatasetError, match="is not one of 3 choices"):
        algorithm.learn(dataset=TransitionDataset.from_dict(choices(5)))


@pytest.mark.parametrize(
    ("algo", "option"), [("bc", {"policy_type": "gaussian"}), ("crr", {"n_action_samples": 9})]
)
def test_options_that_discrete_actions_do_not_read_are_refused(
    algo: str, option: dict[str, Any], tmp_path: Path
) -> None:
    made = managed(algo)(config(tmp_path, algo=algo, algo_kwargs=option))
    with pytest.raises(ConfigError, match=f"{next(iter(option))}: has no part in {algo}"):
        made.learn(dataset=TransitionDataset.from_dict(choices()))
    assert list(tmp_path.iterdir()) == []


def test_continuous_data_for_a_discrete_environment(tmp_path: Path) -> None:
    fields = make_fields(obs_dim=4, action_dim=1)
    algorithm = BC(config(tmp_path, env_id="CartPole-v1"))
    with pytest.raises(DatasetError, match="are continuous, but those of CartPole-v1 are discrete"):
        algorithm.learn(dataset=TransitionDataset.from_dict(fields))
