"""Catalogue of what there is: built-in datasets, groups of options, resolved configurations."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from rl_training.algorithms.registry import (
    AlgorithmSpec,
    get_algorithm_spec,
    list_algorithm_specs,
    load_plugin,
)
from rl_training.config import Options, dump_yaml_value, meaning_of_none
from rl_training.data.builtin.library import BUILTIN
from rl_training.data.replay_config import ReplayConfig
from rl_training.runtime.config.choices import chosen_options, default_options
from rl_training.runtime.config.files import load_config
from rl_training.runtime.config.schedules import ScheduleConfig
from rl_training.runtime.config.train_config import TrainConfig, group_classes

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

__all__ = [
    "OptionGroup",
    "builtin_datasets",
    "load_plugin",
    "nested_options",
    "option_groups",
    "resolve_config",
    "unset_options",
]


def builtin_datasets() -> dict[str, str]:
    """Description of every built-in dataset by its name."""
    return {name: dataset.description for name, dataset in BUILTIN.items()}


def resolve_config(name: str | Path, overrides: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Check a configuration and fill in every default that its regime uses.

    Choices that options leave to the algorithm are filled in, too; None is an option that is off.
    """
    config = load_config(name, overrides)
    return {**config.as_dict(), "algo_kwargs": chosen_options(config)}


def unset_options(values: Mapping[str, Any]) -> dict[str, str]:
    """Say what each option of a resolved configuration that is off by default means, by its name."""
    meanings: dict[str, str] = {}
    groups: list[type[Options]] = [TrainConfig]
    groups += group_classes(get_algorithm_spec(values["algo"])).values()
    for group in groups:
        chosen = values if group is TrainConfig else values["algo_kwargs"]
        for name, field in group.model_fields.items():
            if name in chosen and chosen[name] is None and field.default is None:
                meanings[name] = meaning_of_none(field)
    return meanings


class OptionGroup(NamedTuple):
    """Options under one title, and the algorithms that have them."""

    options: type[Options]
    algorithms: list[AlgorithmSpec]

    def default(self, name: str) -> str:
        """Default of an option in words; the algorithms' own, where they differ."""
        field = self.options.model_fields[name]
        if field.is_required():
            return "required"
        chosen = {spec.name: default_options(spec) for spec in self.algorithms}
        texts = {
            algo: _shown(values[name], field) if name in values else ""
            for algo, values in chosen.items()
        }
        different = dict.fromkeys(texts.values())
        if len(different) < 2 or "" in different:
            return f"default {next(iter(filter(None, different)), _shown(field.default, field))}"
        by_text = {
            text: ", ".join(algo for algo in texts if texts[algo] == text) for text in different
        }
        return "default " + "; ".join(f"{text} for {names}" for text, names in by_text.items())


def _shown(value: Any, field: FieldInfo) -> str:
    """Write a value as in a configuration file, or say what it means that there is none."""
    if value is None:
        return meaning_of_none(field)
    if isinstance(value, tuple):
        value = list(value)
    return dump_yaml_value(value)


def option_groups(option: str, algo: str | None = None) -> dict[str, OptionGroup]:
    """Groups in which to look for an option, by title: of one algorithm, or of all of them.

    A replay group has the name of its algorithm in the title only if its default of `option`
    differs from the usual one.
    """
    groups = {"TrainConfig": OptionGroup(TrainConfig, [])}
    for spec in list_algorithm_specs() if algo is None else [get_algorithm_spec(algo)]:
        for title, group in group_classes(spec).items():
            owner = spec.name if title == "algorithm" else title
            if title == "replay" and _default(group, option) != _default(ReplayConfig, option):
                owner = f"{spec.name} {title}"
            same_title = groups.setdefault(f"{owner} options", OptionGroup(group, []))
            same_title.algorithms.append(spec)
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
