"""`config --schema` describes what the package accepts, to editors and other programs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rl_training import TrainConfig, api
from rl_training.cli.main import main
from rl_training.config import ConfigError, packaged_config_text, parse_yaml
from rl_training.runtime.config.train_config import ALIASES, group_classes

jsonschema = pytest.importorskip("jsonschema", reason="needs the extra dev")
NAMES = [spec.name for spec in api.list_algorithm_specs()]


@pytest.fixture(scope="module")
def whole() -> Any:
    schema = api.config_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_every_packaged_configuration_is_valid(whole: Any) -> None:
    for name in api.packaged_configs():
        values = parse_yaml(packaged_config_text(name), name)
        assert [error.message for error in whole.iter_errors(values)] == [], name


def test_every_configuration_is_valid_with_its_defaults_filled_in(whole: Any) -> None:
    for name in api.packaged_configs():
        values = api.resolve_config(name)
        assert [error.message for error in whole.iter_errors(values)] == [], name


@pytest.mark.parametrize("algo", NAMES)
def test_every_option_is_described_with_its_default(algo: str) -> None:
    schema = api.config_schema(algo)
    jsonschema.Draft202012Validator.check_schema(schema)
    described = schema["properties"]["algo_kwargs"]["properties"]
    groups = group_classes(api.get_algorithm_spec(algo)).values()
    declared = {key: field for group in groups for key, field in group.model_fields.items()}
    assert set(described) - set(ALIASES) == set(declared)
    for key, field in declared.items():
        assert described[key]["description"] == field.description
        assert {"type", "anyOf", "enum"} & set(described[key]), key
    assert described["batch_size"]["minimum"] == 1
    assert described["batch_size"]["default"] == declared["batch_size"].default


WRONG: list[dict[str, Any]] = [
    {"algo": "nonsense"},
    {"algo": "bc", "sead": 1},
    {"algo": "bc", "seed": True},
    {"algo": "bc", "algo_kwargs": {"tua": 0.1}},
    {"algo": "td3_bc", "algo_kwargs": {"gamma": 2}},
    {"algo": "td3_bc", "algo_kwargs": {"regime": "online"}},
    {"algo": "bc", "algo_kwargs": {"dataset_kind": "nzp"}},
    {"algo": "bc", "algo_kwargs": {"buffer_capacity": 100}},
    {"algo": "bc", "algo_kwargs": {"early_stopping": {"patience": 0}}},
    {"algo": "bc", "algo_kwargs": {"learning_rate_schedule": {"actr": "cosine"}}},
    {"algo": "bc", "algo_kwargs": {"learning_rate_schedule": {"kind": "cosine", "final": 2}}},
    {"algo": "rlpd", "env_id": "Pendulum-v1", "algo_kwargs": {"offline_batch_ratio": 1.5}},
    {"algo": "sac", "env_id": "Pendulum-v1", "env_kwargs": {"wrappers": {"reward": {"scal": 2}}}},
]
RIGHT: list[dict[str, Any]] = [
    {"algo": "bc"},
    {"algo": "bc", "algo_kwargs": {"learning_rate_schedule": {"actor": "cosine"}}},
    {"algo": "bc", "algo_kwargs": {"learning_rate_schedule": {"kind": "linear", "final": 0.1}}},
    {"algo": "bc", "algo_kwargs": {"dataset_mix": [{"kind": "builtin", "id": "pendulum/mixed-v0"}]}},
    {"algo": "bc", "algo_kwargs": {"early_stopping": {"patience": 3}}, "env_id": "Pendulum-v1"},
    {"algo": "sac", "env_id": "Pendulum-v1", "algo_kwargs": {"buffer_size": 1e5}},
    {"algo": "sac", "env_id": "Pendulum-v1", "env_kwargs": {"wrappers": {"reward": {"scale": 2}}, "g": 9.8}},
]  # fmt: skip


@pytest.mark.parametrize("values", WRONG, ids=str)
def test_the_schema_refuses_what_the_package_refuses(values: dict[str, Any], whole: Any) -> None:
    with pytest.raises(ConfigError):
        TrainConfig(**values)
    assert not whole.is_valid(values)


@pytest.mark.parametrize("values", RIGHT, ids=str)
def test_the_schema_accepts_what_the_package_accepts(values: dict[str, Any], whole: Any) -> None:
    TrainConfig(**values)
    assert [error.message for error in whole.iter_errors(values)] == []


def test_the_command_takes_an_algorithm_or_a_configuration(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("td3_bc", "td3_bc/pendulum"):
        assert main(["config", "--schema", name]) == 0
        assert json.loads(capsys.readouterr().out) == api.config_schema("td3_bc")
    assert main(["config", "--schema"]) == 0
    assert json.loads(capsys.readouterr().out) == api.config_schema()
    assert main(["config", "--schema", "td3_bc", "tau=1"]) == 2
    assert main(["config", "--schema", "td3_bcc"]) == 2
    assert main(["config"]) == 2
    assert "--schema" in capsys.readouterr().err
