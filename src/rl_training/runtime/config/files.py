"""Configurations from files and from the package, with overrides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rl_training.algorithms.registry import get_algorithm_spec
from rl_training.config import (
    ConfigError,
    Problem,
    packaged_config_text,
    packaged_configs,
    parse_yaml,
    suggest,
    unknown_key,
)
from rl_training.data.dataset_config import DatasetChoice
from rl_training.data.formats import list_formats
from rl_training.files import read_regular
from rl_training.runtime.config.train_config import (
    ALIASES,
    REMOVED,
    TrainConfig,
    not_an_option,
    option_names,
)

MAX_BYTES = 4 << 20  # of a configuration file
KWARGS = ("algo_kwargs", "env_kwargs")


def read_config_text(name: str | Path) -> tuple[str, str]:
    """Read a configuration file or a packaged configuration; returns its text and origin."""
    path = Path(name)
    try:
        if path.exists() and not path.is_dir():
            return read_regular(path, limit=MAX_BYTES, follow_links=True).decode(), str(path)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(
            f"{path} is not a configuration, which is YAML text{_log(path)}"
        ) from None
    packaged = packaged_configs()
    stem = str(name).removesuffix(".yaml")
    if stem in packaged:
        return packaged_config_text(stem), stem
    if path.suffix in (".yaml", ".yml"):
        raise ConfigError(f"no such configuration file: {path}")
    of_algorithm = [entry for entry in packaged if entry.startswith(f"{stem}/")]
    if of_algorithm:
        raise ConfigError(
            f"{stem!r} is an algorithm, not a configuration; its packaged configurations: "
            f"{', '.join(of_algorithm)}"
        )
    if path.is_dir():
        raise ConfigError(
            f"{path} is a directory; name a configuration file, or one of rl-training list"
        )
    hint = suggest(stem, packaged) or " (rl-training list shows the packaged ones)"
    raise ConfigError(f"no configuration file or packaged configuration {str(name)!r}{hint}")


def _log(path: Path) -> str:
    """Say how a log is given, if the path is that of one."""
    formats = [entry.name for entry in list_formats() if path.suffix in entry.endings]
    return (
        f"; give a log to one: iql/own-log dataset_kind={formats[0]} dataset_path={path}"
        if formats
        else ""
    )


def read_config_values(name: str | Path) -> dict[str, Any]:
    """Read a configuration without checking what its keys and values are."""
    text, origin = read_config_text(name)
    values = parse_yaml(text, origin)
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise ConfigError(f"{origin} must be a mapping of names to values")
    return values


def load_config(name: str | Path, overrides: Mapping[str, Any] | None = None) -> TrainConfig:
    """Load and check a configuration; `overrides` have dotted keys, or bare ones if unambiguous."""
    values = read_config_values(name)
    try:
        return TrainConfig(**apply_overrides(values, overrides or {}))
    except ConfigError as error:
        raise ConfigError(list(error.problems)) from None


def parse_assignments(words: Iterable[str]) -> dict[str, Any]:
    """Parse words such as `tau=0.01` and `algo_kwargs.gamma=0.9`; values are YAML."""
    parsed: dict[str, Any] = {}
    for word in words:
        key, separator, value = word.partition("=")
        if not separator or not key:
            if word in packaged_configs() or word.endswith((".yaml", ".yml")):
                raise ConfigError(f"the configuration comes first, then key=value: {word} ...")
            raise ConfigError(f"{word!r} is not an override; write key=value, without spaces")
        if key in parsed:
            raise ConfigError(f"{key} is given twice")
        if not value:
            raise ConfigError(f"{key} has no value; write {key}=VALUE, or {key}=null to unset it")
        try:
            parsed[key] = parse_yaml(value, f"the value of {key}")
        except ConfigError as error:
            if value.count("[") == value.count("]"):
                raise
            advice = f"quote a value with spaces: '{key}=[1, 2]'"
            raise ConfigError(f"{error}; {advice}") from None
    return parsed


def apply_overrides(values: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Copy of `values` with overrides put where they belong."""
    merged = dict(values)
    for key in KWARGS:
        kwargs = merged.get(key) or {}
        merged[key] = dict(kwargs) if isinstance(kwargs, Mapping) else kwargs
    algo = overrides.get("algo", merged.get("algo"))
    paths = {key: _full_path(key, algo) for key in overrides}
    given = Counter(paths.values())
    for key, path in paths.items():
        if given[path] > 1:
            raise ConfigError(f"{key} is given twice, also as {'.'.join(path)}")
    _drop_inapplicable_keys(merged, {paths[key]: value for key, value in overrides.items()})
    for key, value in overrides.items():
        *parents, last = paths[key]
        target = merged
        for parent in parents:
            inner = target.get(parent)
            target[parent] = dict(inner) if isinstance(inner, Mapping) else {}
            target = target[parent]
        target[last] = value
    return merged


def _full_path(key: str, algo: Any) -> tuple[str, ...]:
    """Path of an override from the top: `tau` is `algo_kwargs.tau`."""
    first, *rest = key.split(".")
    if first in TrainConfig.model_fields:
        if rest and first not in KWARGS:
            raise ConfigError([Problem((key,), f"{first} has no parts")])
        return (first, *rest)
    if first in REMOVED:
        raise ConfigError([Problem((key,), REMOVED[first])])
    first = ALIASES.get(first, first)
    if not isinstance(algo, str):
        raise ConfigError([Problem((key,), unknown_key(first, TrainConfig.model_fields))])
    spec = get_algorithm_spec(algo)
    options = option_names(spec)
    if first in options:
        return ("algo_kwargs", first, *rest)
    raise ConfigError([Problem((key,), not_an_option(first, spec, options))])


def _drop_inapplicable_keys(
    values: dict[str, Any], overrides: Mapping[tuple[str, ...], Any]
) -> None:
    """Drop keys of the file that mean nothing to the overriding dataset kind or without an env."""
    kind = overrides.get(("algo_kwargs", "dataset_kind"))
    if ("algo_kwargs", "dataset_mix") in overrides:
        dropped = set(DatasetChoice.model_fields)
    elif isinstance(kind, str):
        used = {key for entry in list_formats() if entry.name == kind for key in entry.keys}
        dropped = {*DatasetChoice.model_fields, "dataset_mix"} - used - {"dataset_kind"}
    else:
        dropped = set()
    if isinstance(values["algo_kwargs"], dict):
        for key in dropped:
            values["algo_kwargs"].pop(key, None)
    if ("env_id",) in overrides and overrides[("env_id",)] is None:
        values["env_kwargs"] = {}
