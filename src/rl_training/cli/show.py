"""`list`, `explain` and `config`: what there is, what an option means, what would run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rl_training import api
from rl_training.cli.console import PluginOption, say
from rl_training.config import ConfigError, dump_yaml, suggest, type_name

if TYPE_CHECKING:
    from rl_training.api import OptionGroup


def list_known(plugin: PluginOption = []) -> None:  # noqa: B006
    """List algorithms, packaged configurations and built-in datasets."""
    say("algorithms")
    for spec in api.list_algorithm_specs():
        regimes = ", ".join(spec.regimes).replace("_", "-")
        actions = ", ".join(spec.action_kinds)
        say(f"  {spec.name:10} {spec.summary}  [{regimes}; {actions} actions]")
    say("packaged configurations (rl-training train NAME)")
    for name in api.packaged_configs():
        say(f"  {name}")
    say("built-in datasets (dataset_kind: builtin, dataset_id: NAME)")
    for name, description in api.builtin_datasets().items():
        say(f"  {name:20} {description}")


def config(
    name: Annotated[str, typer.Argument(help="A YAML file or a packaged name.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value ...")] = None,
    plugin: PluginOption = [],  # noqa: B006
) -> None:
    """Check a configuration and print it with every default filled in."""
    values = api.resolve_config(name, api.parse_assignments(overrides or []))
    off = api.unset_options(values)
    kwargs = {key: value for key, value in values["algo_kwargs"].items() if key not in off}
    shown = {key: value for key, value in values.items() if key not in off}
    say(dump_yaml({**shown, "algo_kwargs": kwargs}).rstrip())
    if off:
        say("# not set:")
    for option, meaning in off.items():
        say(f"#   {option}: {meaning}")


def explain(
    what: Annotated[
        str, typer.Argument(help="An option (eval_interval, td3_bc.bc_alpha) or an algorithm.")
    ],
    plugin: PluginOption = [],  # noqa: B006
) -> None:
    """Say what an option means: its type, range, default."""
    path = what.removeprefix("algo_kwargs.").split(".")
    names = [spec.name for spec in api.list_algorithm_specs()]
    algo = path.pop(0) if path[0] in names else None
    if algo is not None and not path:
        _explain_algorithm(algo)
        return
    groups = api.option_groups(path[0], algo)
    explained = [_explain_option(path, title, group) for title, group in groups.items()]
    if not any(explained):
        options = {key for group in groups.values() for key in group.options.model_fields}
        options |= set(names)
        hint = suggest(path[-1], options) or "; `rl-training explain ALGORITHM` lists its options"
        raise ConfigError(f"nothing is called {what!r}{hint}")


def _explain_algorithm(name: str) -> None:
    spec = api.get_algorithm_spec(name)
    say(f"{spec.name}: {spec.summary}")
    for title, options in api.group_classes(spec).items():
        say(f"\n{title} options")
        group = api.OptionGroup(options, [spec])
        for option in options.model_fields:
            say(f"  {_line(option, option, group)}")


def _explain_option(path: list[str], title: str, group: OptionGroup) -> bool:
    """Follow `early_stopping.patience` into nested groups; false if there is no such option."""
    if path[0] not in group.options.model_fields:
        return False
    options = api.nested_options(path[0], group.options)
    inner = None if options is None else api.OptionGroup(options, [])
    if len(path) > 1:
        return inner is not None and _explain_option(path[1:], f"{title}, {path[0]}", inner)
    say(f"{title}: {_line(path[0], path[0], group)}")
    if inner is not None:
        for name in inner.options.model_fields:
            say(f"  {_line(f'{path[0]}.{name}', name, inner)}")
    return True


def _line(shown_name: str, name: str, group: OptionGroup) -> str:
    field = group.options.model_fields[name]
    limits = [str(entry).replace("(", " ").rstrip(")") for entry in field.metadata]
    words = {"Gt gt=": "> ", "Ge ge=": ">= ", "Lt lt=": "< ", "Le le=": "<= "}
    bounds = []
    for limit in limits:
        for word, sign in words.items():
            if limit.startswith(word):
                bounds.append(sign + limit.removeprefix(word))
    detail = ", ".join([type_name(field.annotation), *bounds, group.default(name)])
    return f"{shown_name}: {field.description} ({detail})"
