"""Options that are left to the algorithm: what it chooses is shown, and chosen for the user's own data."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from rl_training.api import OptionGroup, resolve_config, unset_options
from rl_training.cli.main import main
from rl_training.config import ConfigError, meaning_of_none
from rl_training.experiment import get_algorithm_spec, list_algorithm_specs, packaged_configs
from rl_training.runtime import TrainConfig, train
from rl_training.runtime.config.choices import default_options
from rl_training.runtime.config.files import load_config, read_config_text
from rl_training.runtime.config.train_config import group_classes
from tests.support.runs import assert_same_run

OFFLINE = ("awac", "bc", "cql", "crr", "iql", "rebrac", "td3_bc")
PAPERS = ("locomotion", "antmaze", "antmaze-umaze", "halfcheetah-medium", "hopper-medium",
          "walker2d-medium")  # fmt: skip


@pytest.mark.parametrize("algo", OFFLINE)
def test_offline_algorithms_normalise_observations_and_leave_rewards(algo: str) -> None:
    defaults = default_options(get_algorithm_spec(algo))
    assert defaults["normalize_observations"] is True
    assert defaults["normalize_rewards"] is False
    assert defaults["reward_shift"] == 0.0


def test_presets_of_the_papers_say_how_they_normalise() -> None:
    """Their settings do not depend on what the defaults are."""
    for name in packaged_configs():
        algo, task = name.split("/")
        if algo in OFFLINE and task in PAPERS:
            kwargs = yaml.safe_load(read_config_text(name)[0])["algo_kwargs"]
            assert "normalize_observations" in kwargs, name
    locomotion = load_config("iql/locomotion").algo_kwargs
    assert locomotion["normalize_rewards"] is True
    assert locomotion["normalize_observations"] is False
    assert load_config("rebrac/hopper-medium").algo_kwargs["normalize_observations"] is False
    assert load_config("cql/locomotion").algo_kwargs["normalize_observations"] is True


def test_every_option_that_may_be_none_says_what_that_means() -> None:
    for spec in list_algorithm_specs():
        chosen = default_options(spec)
        groups = {"": TrainConfig, **group_classes(spec)}
        for group in groups.values():
            for name, field in group.model_fields.items():
                if field.default is None and chosen.get(name) is None:
                    assert meaning_of_none(field) != "not set", (spec.name, name)


@pytest.mark.parametrize("algo", OFFLINE)
def test_explain_never_shows_none(algo: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", algo]) == 0
    text = capsys.readouterr().out
    assert "default None" not in text
    assert "default null" not in text


def test_defaults_that_differ_are_told_by_algorithm() -> None:
    specs = [get_algorithm_spec(name) for name in ("iql", "rlpd")]
    group = OptionGroup(group_classes(specs[0])["dataset"], specs)
    assert group.default("normalize_observations") == "default true for iql; false for rlpd"
    assert group.default("top_fraction") == "default all episodes"


def test_resolved_configuration_shows_the_algorithms_choices() -> None:
    values = resolve_config("iql/pendulum", {"learning_rate": 0.01, "normalize_observations": None})
    kwargs = values["algo_kwargs"]
    assert kwargs["regime"] == "offline"
    assert kwargs["learning_rate_schedule"] == {"actor": "cosine"}
    assert kwargs["actor_learning_rate"] == 0.01
    assert kwargs["normalize_observations"] is True
    assert {"max_updates", "early_stopping"} <= unset_options(values).keys()
    random = resolve_config("bc/pendulum", {"dataset_kind": "random"})["algo_kwargs"]
    assert random["dataset_size"] == 10_000
    assert isinstance(random["dataset_seed"], int)
    online = resolve_config("sac/pendulum")["algo_kwargs"]
    assert online["target_entropy"] == "auto"
    assert resolve_config("iql/pendulum-finetune")["algo_kwargs"]["offline_batch_ratio"] == "pooled"


@pytest.mark.parametrize("name", [*(f"{algo}/pendulum" for algo in OFFLINE), "cql/cartpole"])
def test_printed_configuration_trains_the_same_policy(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["total_timesteps=6", "eval_episodes=1", "eval_interval=6", "batch_size=8",
             "hidden_sizes=[8]", "log_interval=3"]  # fmt: skip
    assert main(["config", name, *small]) == 0
    printed = capsys.readouterr().out
    assert "null" not in printed
    (tmp_path / "printed.yaml").write_text(printed)
    runs = [
        train(
            load_config(source, {**dict(yaml_words(small)), "output_dir": str(tmp_path / folder)})
        )
        for source, folder in ((name, "a"), (tmp_path / "printed.yaml", "b"))
    ]
    assert_same_run(runs[0].run_dir, runs[1].run_dir)


def yaml_words(words: list[str]) -> list[tuple[str, object]]:
    return [(key, yaml.safe_load(value)) for key, _, value in (w.partition("=") for w in words)]


@pytest.mark.parametrize("algo", OFFLINE)
def test_own_log_needs_a_log_and_trains_on_it(algo: str, tmp_path: Path, log_file: Path) -> None:
    with pytest.raises(ConfigError, match=r"dataset_path=LOG\.npz"):
        train(load_config(f"{algo}/own-log", {"output_dir": str(tmp_path)}))
    small = {"total_timesteps": 3, "batch_size": 8, "hidden_sizes": [8],
             "output_dir": str(tmp_path), "dataset_path": str(log_file)}  # fmt: skip
    config = load_config(f"{algo}/own-log", small)
    assert config.env_id is None
    result = train(config)
    assert result.stop_reason == "total_timesteps"
    assert (result.checkpoint_path / "manifest.json").exists()


@pytest.mark.parametrize("algo", OFFLINE)
def test_own_log_says_what_each_key_is(algo: str) -> None:
    text, _ = read_config_text(f"{algo}/own-log")
    for line in text.split("algo:", 1)[1].splitlines():
        assert "#" in line or line == "algo_kwargs:", line
