"""`list`, `explain` and `config`: what there is, what an option means, what would run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from rl_training.cli.console import PluginOption, say
from rl_training.config import ConfigError, Options, dump_yaml, suggest, type_name

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from rl_training.algorithms.registry import AlgorithmSpec


def list_known(plugin: PluginOption = []) -> None:  # noqa: B006
    """List algorithms, packaged configurations and built-in datasets."""
    from rl_training.data.builtin.library import BUILTIN
    from rl_training.experiment import list_algorithm_specs, packaged_configs

    say("algorithms")
    for spec in list_algorithm_specs():
        regimes = ", ".join(spec.regimes).replace("_", "-")
        actions = ", ".join(spec.action_kinds)
        say(f"  {spec.name:10} {spec.summary}  [{regimes}; {actions} actions]")
    say("packaged configurations (rl-training train NAME)")
    for name in packaged_configs():
        say(f"  {name}")
    say("built-in datasets (dataset_kind: builtin, dataset_id: NAME)")
    for name, dataset in BUILTIN.items():
        say(f"  {name:20} {dataset.description}")


def config(
    name: Annotated[str, typer.Argument(help="A YAML file or a packaged name.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value ...")] = None,
    plugin: PluginOption = [],  # noqa: B006
) -> None:
    """Check a configuration and print it with every default filled in."""
    from rl_training.experiment.configs import load_config, parse_assignments
    from rl_training.runtime.config.train_config import group_classes

    loaded = load_config(name, parse_assignments(overrides or []))
    values = loaded.as_dict()
    built = loaded.groups._asdict()
    groups = [
        built[name].model_dump(mode="json")
        for name in group_classes(loaded.spec)
        if loaded.regime != "offline" or name not in ("replay", "offline_to_online")
    ]
    values["algo_kwargs"] = {key: value for group in groups for key, value in group.items()}
    say(dump_yaml(values).rstrip())


def explain(
    what: Annotated[
        str, typer.Argument(help="An option (eval_interval, td3_bc.bc_alpha) or an algorithm.")
    ],
    plugin: PluginOption = [],  # noqa: B006
) -> None:
    """Say what an option means: its type, range, default."""
    from rl_training.data.replay_config import ReplayConfig
    from rl_training.experiment import get_algorithm_spec, list_algorithm_specs
    from rl_training.runtime.config.train_config import TrainConfig, group_classes

    first, *rest = what.removeprefix("algo_kwargs.").split(".")
    specs = list_algorithm_specs()
    names = [spec.name for spec in specs]
    if first in names:
        specs, options = [get_algorithm_spec(first)], rest
        if not rest:
            _explain_algorithm(specs[0])
            return
    else:
        options = [first, *rest]
    groups: dict[str, type[Options]] = {"TrainConfig": TrainConfig}
    for spec in specs:
        for title, group in group_classes(spec).items():
            owner = spec.name if title == "algorithm" else title
            if title == "replay" and _default(group, options) != _default(ReplayConfig, options):
                owner = f"{spec.name} {title}"
            groups[f"{owner} options"] = group
    found = [_explain_option(options, title, group) for title, group in groups.items()]
    if not any(found):
        known = {key for group in groups.values() for key in group.model_fields} | set(names)
        hint = suggest(options[-1], known) or "; `rl-training explain ALGORITHM` lists its options"
        raise ConfigError(f"nothing is called {what!r}{hint}")


def _default(group: type[Options], path: list[str]) -> Any:
    field = group.model_fields.get(path[0])
    return None if field is None else field.default


def _explain_algorithm(spec: AlgorithmSpec) -> None:
    from rl_training.runtime.config.train_config import group_classes

    say(f"{spec.name}: {spec.summary}")
    for title, group in group_classes(spec).items():
        say(f"\n{title} options")
        for name, field in group.model_fields.items():
            say(f"  {_line(name, field)}")


def _explain_option(path: list[str], title: str, group: type[Options]) -> bool:
    """Follow `early_stopping.patience` into nested groups; false if there is no such option."""
    field = group.model_fields.get(path[0])
    if field is None:
        return False
    inner = _schedule(path[0]) or _nested(field.annotation)
    if len(path) > 1:
        return inner is not None and _explain_option(path[1:], f"{title}, {path[0]}", inner)
    say(f"{title}: {_line(path[0], field)}")
    for name, part in inner.model_fields.items() if inner else ():
        say(f"  {_line(f'{path[0]}.{name}', part)}")
    return True


def _schedule(option: str) -> type[Options] | None:
    """A schedule is declared as name or mapping; the mapping is a group of its own."""
    from rl_training.runtime.config.schedules import ScheduleConfig

    return ScheduleConfig if option == "learning_rate_schedule" else None


def _nested(annotation: Any) -> type[Options] | None:
    for part in (annotation, *get_args(annotation)):
        if isinstance(part, type) and issubclass(part, Options):
            return part
    return None


def _line(name: str, field: FieldInfo) -> str:
    limits = [str(entry).replace("(", " ").rstrip(")") for entry in field.metadata]
    words = {"Gt gt=": "> ", "Ge ge=": ">= ", "Lt lt=": "< ", "Le le=": "<= "}
    bounds = []
    for limit in limits:
        for word, sign in words.items():
            if limit.startswith(word):
                bounds.append(sign + limit.removeprefix(word))
    default = "required" if field.is_required() else f"default {field.default!r}"
    detail = ", ".join([type_name(field.annotation), *bounds, default])
    return f"{name}: {field.description} ({detail})"
