"""JSON Schema of configurations, from the declarations that validate them: for editors and other programs.

A schema knows every option with its type, bounds, default and sentence. What depends on several options at once is
checked by `rl-training config` alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rl_training.algorithms.registry import (
    AlgorithmSpec,
    get_algorithm_spec,
    list_algorithm_specs,
)
from rl_training.config import Options
from rl_training.data.dataset_config import SHORT_NAMES
from rl_training.data.formats import list_formats
from rl_training.data.offline_to_online_config import RatioSchedule
from rl_training.envs import RewardTransformConfig
from rl_training.runtime.config.schedules import ScheduleConfig
from rl_training.runtime.config.train_config import ALIASES, TrainConfig, group_classes

Schema = dict[str, Any]
DIALECT = "https://json-schema.org/draft/2020-12/schema"
NULL: Schema = {"type": "null"}


def config_schema(algo: str | None = None) -> Schema:
    """Describe the configurations of one algorithm, or of all, each with its own `algo_kwargs`."""
    specs = list_algorithm_specs() if algo is None else [get_algorithm_spec(algo)]
    schema = _group_schema(TrainConfig)
    schema["properties"]["algo"]["enum"] = [spec.name for spec in specs]
    schema["properties"]["env_kwargs"] |= _env_kwargs_schema()
    kwargs = {spec.name: _algo_kwargs_schema(spec) for spec in specs}
    if algo is None:
        schema["allOf"] = [
            {
                "if": {"properties": {"algo": {"const": name}}, "required": ["algo"]},
                "then": {"properties": {"algo_kwargs": {"$ref": f"#/$defs/{name}"}}},
            }
            for name in kwargs
        ]
        schema["$defs"] = kwargs
    else:
        schema["properties"]["algo_kwargs"] |= kwargs[algo]
    title = "rl-training configuration" if algo is None else f"rl-training configuration of {algo}"
    return {"$schema": DIALECT, "title": title, **schema}


def option_schema(name: str, group: type[Options]) -> Schema:
    """Describe one option of a group."""
    return _group_schema(group)["properties"][name]


def _algo_kwargs_schema(spec: AlgorithmSpec) -> Schema:
    properties: Schema = {}
    for group in group_classes(spec).values():
        properties |= _group_schema(group)["properties"]
    regime = {"anyOf": [{"type": "string", "enum": list(spec.regimes)}, NULL]}
    properties["regime"] = _retyped(properties["regime"], regime)
    properties["learning_rate_schedule"] = _retyped(
        properties["learning_rate_schedule"], _schedule_schema(spec.algorithm.losses)
    )
    for alias, name in ALIASES.items():
        if name in properties:
            other = {key: value for key, value in properties[name].items() if key != "default"}
            properties[alias] = {**other, "description": f"another name of {name}"}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _group_schema(group: type[Options]) -> Schema:
    """Take pydantic's schema of a group, without titles and references, and with what its validators add."""
    raw = group.model_json_schema()
    schema: Schema = _inlined(raw, raw.get("$defs", {}))
    _refine(schema["properties"])
    return schema


def _refine(properties: Schema) -> None:
    """Write out what the declared types leave to validators."""
    if "dataset_kind" in properties:
        kinds = {
            "anyOf": [{"type": "string", "enum": [kind.name for kind in list_formats()]}, NULL]
        }
        properties["dataset_kind"] = _retyped(properties["dataset_kind"], kinds)
    if "offline_batch_ratio" in properties:
        share = {"type": "number", "minimum": 0, "maximum": 1}
        pooled = {"type": "string", "enum": ["pooled"]}
        forms = {"anyOf": [share, pooled, _group_schema(RatioSchedule), NULL]}
        properties["offline_batch_ratio"] = _retyped(properties["offline_batch_ratio"], forms)
    if "learning_rate_schedule" in properties:
        properties["learning_rate_schedule"] = _retyped(
            properties["learning_rate_schedule"], _schedule_schema(None)
        )
    if "dataset_mix" in properties:
        part = properties["dataset_mix"]["anyOf"][0]["items"]["properties"]
        _refine(part)
        part |= {short: part[name] for short, name in SHORT_NAMES.items()}


def _schedule_schema(networks: Mapping[str, Any] | None) -> Schema:
    """Describe a schedule: a name, a mapping with `kind`, or one of these for each network."""
    mapping = _group_schema(ScheduleConfig)
    names = {"type": "string", "enum": mapping["properties"]["kind"]["enum"]}
    one = {"anyOf": [names, mapping]}
    each: Schema = {"type": "object", "not": {"required": ["kind"]}}
    if networks is None:
        each["additionalProperties"] = one
    else:
        each |= {"properties": dict.fromkeys(networks, one), "additionalProperties": False}
    return {"anyOf": [names, {**mapping, "required": ["kind"]}, each, NULL]}


def _env_kwargs_schema() -> Schema:
    reward = {"anyOf": [_group_schema(RewardTransformConfig), NULL]}
    wrappers = {
        "type": ["object", "null"],
        "properties": {"reward": reward},
        "additionalProperties": False,
    }
    use = {"type": ["object", "null"], "properties": {"wrappers": wrappers}}
    return {"properties": {"wrappers": wrappers, "training": use, "evaluation": use}}


def _retyped(schema: Schema, types: Schema) -> Schema:
    words: Schema = {key: schema[key] for key in ("default", "description") if key in schema}
    return {**types, **words}


def _inlined(value: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(value, list):
        return [_inlined(entry, definitions) for entry in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        name = value["$ref"].rsplit("/", 1)[1]
        rest = {key: entry for key, entry in value.items() if key != "$ref"}
        return {**_inlined(definitions[name], definitions), **_inlined(rest, definitions)}
    return {
        key: _inlined(entry, definitions)
        for key, entry in value.items()
        if key != "$defs" and not (key == "title" and isinstance(entry, str))
    }
