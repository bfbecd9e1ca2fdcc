"""Catalogue of what there is: built-in datasets, groups of options, resolved configurations."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from rl_training.algorithms.registry import (
    get_algorithm_spec,
    list_algorithm_specs,
    load_plugin,
)
from rl_training.config import Options
from rl_training.data.builtin.library import BUILTIN
from rl_training.data.replay_config import ReplayConfig
from rl_training.experiment.configs import load_config
from rl_training.runtime.config.schedules import ScheduleConfig
from rl_training.runtime.config.train_config import TrainConfig, group_classes

__all__ = [
    "builtin_datasets",
    "load_plugin",
    "nested_options",
    "option_groups",
    "resolve_config",
]


def builtin_datasets() -> dict[str, str]:
    """Description of every built-in dataset by its name."""
    return {name: dataset.description for name, dataset in BUILTIN.items()}


def resolve_config(name: str | Path, overrides: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Check a configuration and fill in every default that its regime uses."""
    config = load_config(name, overrides)
    groups = config.groups._asdict()
    options: dict[str, Any] = {}
    for title in group_classes(config.spec):
        if config.regime != "offline" or title not in ("replay", "offline_to_online"):
            options |= groups[title].model_dump(mode="json")
    return {**config.as_dict(), "algo_kwargs": options}


def option_groups(option: str, algo: str | None = None) -> dict[str, type[Options]]:
    """Groups in which to look for an option, by title: of one algorithm, or of all of them.

    A replay group has the name of its algorithm in the title only if its default of `option`
    differs from the usual one.
    """
    groups: dict[str, type[Options]] = {"TrainConfig": TrainConfig}
    for spec in list_algorithm_specs() if algo is None else [get_algorithm_spec(algo)]:
        for title, group in group_classes(spec).items():
            owner = spec.name if title == "algorithm" else title
            if title == "replay" and _default(group, option) != _default(ReplayConfig, option):
                owner = f"{spec.name} {title}"
            groups[f"{owner} options"] = group
    return groups


def nested_options(name: str, group: type[Options]) -> type[Options] | None:
    """Group of options inside an option, as for `early_stopping`; None if it is a plain value."""
    if name == "learning_rate_schedule":  # declared as a name or a mapping
        return ScheduleConfig
    annotation = group.model_fields[name].annotation
    for part in (annotation, *get_args(annotation)):
        if isinstance(part, type) and issubclass(part, Options):
            return part
    return None


def _default(group: type[Options], option: str) -> Any:
    field = group.model_fields.get(option)
    return None if field is None else field.default
