"""Configurations: strict, complete in their complaints, the same from any directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_training.config import ConfigError, parse_yaml
from rl_training.experiment import TrainConfig, load_config, packaged_configs
from rl_training.runtime import EarlyStoppingConfig
from rl_training.runtime.config.files import apply_overrides, parse_assignments


def problems(**values: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        TrainConfig(**values)
    return str(caught.value)


def test_every_problem_is_in_one_message() -> None:
    text = problems(
        algo="td3_bc",
        seed=-1,
        total_timestep=5,
        algo_kwargs={
            "gama": 0.9,
            "tau": 2.0,
            "batch_size": "many",
            "early_stopping": {"patiance": 3},
        },
        env_kwargs={"wrappers": {"reward": {"scael": 2}}},
    )
    lines = text.splitlines()
    assert len(lines) == 7
    assert "seed: must be >= 0, got -1" in lines
    assert "total_timestep: unknown key; did you mean 'total_timesteps'?" in lines
    assert "algo_kwargs.gama: unknown key; did you mean 'gamma'?" in lines
    assert "algo_kwargs.tau: must be <= 1 (range: > 0, <= 1), got 2.0" in lines
    assert "algo_kwargs.batch_size: expected a whole number, got the text 'many'" in lines
    assert any("early_stopping.patiance: unknown key; did you mean 'patience'?" in x for x in lines)
    assert any("env_kwargs.wrappers.reward.scael" in x and "'scale'" in x for x in lines)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("gamma", True, "expected a number, got true"),
        ("gamma", "0.9", "expected a number, got the text '0.9'"),
        ("gamma", float("nan"), "gamma"),
        ("gamma", [0.9], "expected a number"),
        ("batch_size", 2.5, "expected a whole number, got 2.5"),
        ("policy_delay", 0, "must be >= 1"),
        ("hidden_sizes", 64, "expected a list"),
        ("dataset_kind", "npzz", "did you mean 'npz'?"),
        ("learning_rate_schedule", "cosin", "did you mean 'cosine'?"),
        ("learning_rate_schedule", {"kind": "linear", "finall": 0.1}, "did you mean 'final'?"),
        ("learning_rate_schedule", {"actr": "linear"}, "no such network"),
        ("regime", "online", "does not train online"),
        ("early_stopping", 3, "expected a mapping"),
        ("early_stopping", {"metric": "eval/return_men"}, "did you mean 'eval/return_mean'?"),
        ("dataset_mix", [], "at least one"),
        ("top_fraction", 0.0, "must be > 0"),
        ("reward_scale", 0.0, "must not be 0"),
        ("keep_checkpoints", 1, "must be >= 2"),
    ],
)
def test_wrong_value_is_named(key: str, value: Any, message: str) -> None:
    kwargs = {"dataset_kind": "npz", "dataset_path": "x.npz"} if key != "dataset_mix" else {}
    text = problems(algo="td3_bc", algo_kwargs={**kwargs, key: value})
    assert key in text
    assert message in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"algo": "td3bc"}, "did you mean 'td3_bc'?"),
        ({"algo": "xyz"}, "known: awac, bc"),
        ({}, "algo: is required"),
        ({"algo": "bc", "algo_kwargs": 3}, "algo_kwargs: expected a mapping"),
        ({"algo": "bc", "num_envs": 4}, "offline training collects nothing"),
        ({"algo": "bc", "algo_kwargs": {"early_stopping": {}}}, "env_id is null"),
        (
            {
                "algo": "bc",
                "env_id": "X-v0",
                "eval_episodes": 0,
                "algo_kwargs": {"early_stopping": {}},
            },
            "eval_episodes is 0",
        ),
        ({"algo": "bc", "env_kwargs": {"g": 9.8}}, "no effect without an env_id"),
        ({"algo": "bc", "algo_kwargs": {"dataset_kind": "random"}}, "env_id is null"),
        ({"algo": "bc", "algo_kwargs": {"dataset_kind": "npz"}}, "needs dataset_path"),
        ({"algo": "bc", "algo_kwargs": {"dataset_path": "x"}}, "needs dataset_kind"),
        ({"algo": "bc", "algo_kwargs": {"bc_alpha": 2.5}}, "bc_alpha: unknown key"),
        (
            {"algo": "bc", "env_id": "X-v0", "algo_kwargs": {"action_low": -1, "action_high": 1}},
            "only without an env_id",
        ),
    ],
)
def test_keys_that_do_not_fit_together(values: dict[str, Any], message: str) -> None:
    assert message in problems(**values)


def test_defaults_are_the_papers() -> None:
    config = TrainConfig(algo="td3_bc")
    options = config.groups.algorithm.model_dump()
    assert options == {
        "batch_size": 256, "learning_rate": 3e-4, "hidden_sizes": (256, 256), "gamma": 0.99,
        "tau": 0.005, "actor_learning_rate": None, "critic_learning_rate": None,
        "bc_alpha": 2.5, "policy_noise": 0.2, "noise_clip": 0.5, "policy_delay": 2,
        "exploration_noise": 0.1,
    }  # fmt: skip
    assert config.total_timesteps == 1_000_000
    assert config.spec.algorithm.normalizes_observations


def test_yaml_numbers_are_numbers() -> None:
    assert parse_yaml("{a: 1e-3, b: 1E5, c: -2e+3, d: 1.5e3, e: 3}") == {
        "a": 1e-3, "b": 1e5, "c": -2e3, "d": 1.5e3, "e": 3,
    }  # fmt: skip
    assert parse_yaml("{a: 1e, b: e5, c: v1e3}") == {"a": "1e", "b": "e5", "c": "v1e3"}


def test_whole_numbers_may_be_written_with_an_exponent() -> None:
    assert TrainConfig(algo="bc", total_timesteps=1e6).total_timesteps == 1_000_000


def test_key_given_twice_is_an_error() -> None:
    with pytest.raises(ConfigError, match="'tau' is given twice"):
        parse_yaml("tau: 1\ngamma: 2\ntau: 3\n")


def test_broken_yaml_says_where(tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text("algo: bc\n  seed: [1,\n")
    with pytest.raises(ConfigError, match=r"broken.yaml is not valid YAML at line 2"):
        load_config(path)


def test_yaml_cannot_build_objects(tmp_path: Path) -> None:
    path = tmp_path / "evil.yaml"
    path.write_text(f"algo: !!python/object/apply:os.mkdir ['{tmp_path}/owned']\n")
    with pytest.raises(ConfigError):
        load_config(path)
    assert not (tmp_path / "owned").exists()


def test_dotted_and_bare_overrides() -> None:
    words = ["tau=0.01", "algo_kwargs.gamma=1e-1", "seed=7", "env_kwargs.wrappers.reward.scale=0.5",
             "early_stopping.patience=3", "env_id=Pendulum-v1"]  # fmt: skip
    config = load_config("td3_bc/pendulum", parse_assignments(words))
    options = config.groups
    assert options.algorithm.model_dump()["tau"] == 0.01
    assert options.algorithm.model_dump()["gamma"] == 0.1
    assert config.seed == 7
    assert config.env_kwargs == {"wrappers": {"reward": {"scale": 0.5}}}
    assert options.controls.early_stopping is not None
    assert options.controls.early_stopping.patience == 3


def test_misspelt_override_is_suggested() -> None:
    with pytest.raises(
        ConfigError, match="learning_rte: unknown key; did you mean 'learning_rate'"
    ):
        load_config("bc/pendulum", {"learning_rte": 1})
    with pytest.raises(ConfigError, match="write key=value"):
        parse_assignments(["tau"])


def test_another_kind_of_dataset_forgets_the_keys_of_the_old_one() -> None:
    config = load_config("td3_bc/pendulum", {"dataset_kind": "npz", "dataset_path": "log.npz"})
    assert config.groups.dataset.dataset_id is None
    assert config.groups.dataset.reward_scale == 0.1  # belongs to every kind
    mixed = load_config(
        "bc/pendulum",
        {"dataset_mix": [{"kind": "builtin", "id": "pendulum/expert-v0", "weight": 2.0}]},
    )
    assert mixed.groups.dataset.dataset_kind is None


def test_no_environment_forgets_its_options() -> None:
    values = {"algo": "bc", "env_id": "Pendulum-v1", "env_kwargs": {"g": 9.8}}
    assert apply_overrides(values, {"env_id": None})["env_kwargs"] == {}


def test_packaged_configs_load_from_any_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "td3_bc/pendulum" in packaged_configs()
    for name in packaged_configs():
        assert load_config(name).algo == name.split("/")[0]


def test_unknown_packaged_name_is_suggested() -> None:
    with pytest.raises(ConfigError, match="did you mean 'td3_bc/pendulum'"):
        load_config("td3_bc/pendulun")
    with pytest.raises(ConfigError, match=r"no such configuration file: nowhere.yaml"):
        load_config("nowhere.yaml")


def test_config_round_trips_through_its_dictionary() -> None:
    config = load_config("td3_bc/pendulum", {"hidden_sizes": (32, 32)})
    assert TrainConfig(**config.as_dict()).as_dict() == config.as_dict()
    with pytest.raises(Exception, match="frozen"):
        config.seed = 3


def test_values_of_numpy_and_paths_are_kept_as_plain_ones() -> None:
    kwargs = {
        "batch_size": np.int64(8), "tau": np.float32(0.5), "hidden_sizes": np.array([4, 4]),
        "dataset_kind": "npz", "dataset_path": Path("log.npz"),
        "early_stopping": EarlyStoppingConfig(patience=2),
    }  # fmt: skip
    config = TrainConfig(algo="td3_bc", env_id="X-v0", seed=np.int64(3), algo_kwargs=kwargs)
    json.dumps(config.as_dict())
    assert config.as_dict()["algo_kwargs"]["hidden_sizes"] == [4, 4]
    assert config.as_dict()["algo_kwargs"]["early_stopping"] == {"patience": 2}
    with pytest.raises(ConfigError, match=r"env_kwargs\.maker: must be numbers, text"):
        TrainConfig(algo="bc", env_id="X-v0", env_kwargs={"maker": print})


def test_yaml_merge_keys_work() -> None:
    text = "base: &b {tau: 1, gamma: 2}\nown: {<<: *b, tau: 3}\n"
    assert parse_yaml(text)["own"] == {"tau": 3, "gamma": 2}
