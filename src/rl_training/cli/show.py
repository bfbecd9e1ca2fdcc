"""`list`, `explain` and `config`: what there is, what an option means, what would run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rl_training import api
from rl_training.cli import completion
from rl_training.cli.console import JsonOption, PluginOption, say, say_json
from rl_training.config import ConfigError, dump_yaml, suggest, type_name

if TYPE_CHECKING:
    from rl_training.api import OptionGroup


def list_known(json: JsonOption = False, plugin: PluginOption = []) -> None:  # noqa: B006
    """List algorithms, packaged configurations, built-in datasets and benchmark suites."""
    if json:
        say_json(_known())
        return
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
    say("suites (rl-training benchmark NAME)")
    for name, title in api.list_suites().items():
        say(f"  {name:20} {title}")


def _known() -> dict[str, Any]:
    algorithms = [
        {
            "name": spec.name,
            "summary": spec.summary,
            "regimes": list(spec.regimes),
            "action_kinds": list(spec.action_kinds),
        }
        for spec in api.list_algorithm_specs()
    ]
    datasets = [
        {"name": name, "description": description}
        for name, description in api.builtin_datasets().items()
    ]
    suites = [{"name": name, "title": title} for name, title in api.list_suites().items()]
    return {
        "algorithms": algorithms,
        "configs": api.packaged_configs(),
        "datasets": datasets,
        "suites": suites,
    }


def config(
    name: Annotated[
        str | None,
        typer.Argument(
            help="A YAML file or a packaged name; with --schema also an algorithm.",
            autocompletion=completion.configs_and_algorithms,
        ),
    ] = None,
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value ...")] = None,
    schema: Annotated[
        bool,
        typer.Option(
            "--schema", help="Print the JSON Schema of all configurations, or of one algorithm's."
        ),
    ] = False,
    json: JsonOption = False,
    plugin: PluginOption = [],  # noqa: B006
) -> None:
    """Check a configuration and print it with every default filled in."""
    if schema:
        if overrides:
            raise ConfigError(f"--schema takes no overrides: {' '.join(overrides)}")
        say_json(api.config_schema(None if name is None else _algorithm_of(name)))
        return
    if name is None:
        raise ConfigError("config needs a YAML file or a packaged name; --schema works without one")
    values = api.resolve_config(name, api.parse_assignments(overrides or []))
    off = api.unset_options(values)
    kwargs = {key: value for key, value in values["algo_kwargs"].items() if key not in off}
    shown = {key: value for key, value in values.items() if key not in off}
    shown["algo_kwargs"] = kwargs
    if json:
        say_json(shown)
        return
    say(dump_yaml(shown).rstrip())
    if off:
        say("# not set:")
    for option, meaning in off.items():
        say(f"#   {option}: {meaning}")


def _algorithm_of(name: str) -> str:
    """Name of an algorithm as it is, else the algorithm that a configuration trains."""
    names = [spec.name for spec in api.list_algorithm_specs()]
    return name if name in names else api.load_config(name).algo


def explain(
    what: Annotated[
        str,
        typer.Argument(
            help="An option (eval_interval, td3_bc.bc_alpha) or an algorithm.",
            autocompletion=completion.algorithms,
        ),
    ],
    json: JsonOption = False,
    plugin: PluginOption = [],  # noqa: B006
) -> None:
    """Say what an option means: its type, range, default."""
    path = what.removeprefix("algo_kwargs.").split(".")
    names = [spec.name for spec in api.list_algorithm_specs()]
    algo = path.pop(0) if path[0] in names else None
    if algo is not None and not path:
        say_json(_algorithm_facts(algo)) if json else _explain_algorithm(algo)
        return
    groups = api.option_groups(path[0], algo)
    located = [_locate(path, title, group) for title, group in groups.items()]
    options_named = [option for option in located if option is not None]
    if not options_named:
        options = {key for group in groups.values() for key in group.options.model_fields}
        options |= set(names)
        hint = suggest(path[-1], options) or "; `rl-training explain ALGORITHM` lists its options"
        raise ConfigError(f"nothing is called {what!r}{hint}")
    if json:
        say_json({"options": [_option_facts(*option) for option in options_named]})
        return
    for title, name, group in options_named:
        _explain_option(title, name, group)


def _explain_algorithm(name: str) -> None:
    spec = api.get_algorithm_spec(name)
    say(f"{spec.name}: {spec.summary}")
    for title, options in api.group_classes(spec).items():
        say(f"\n{title} options")
        group = api.OptionGroup(options, [spec])
        for option in options.model_fields:
            say(f"  {_line(option, option, group)}")


def _locate(path: list[str], title: str, group: OptionGroup) -> tuple[str, str, OptionGroup] | None:
    """Follow `early_stopping.patience` into nested groups; None if there is no such option."""
    name, *rest = path
    if name not in group.options.model_fields:
        return None
    if not rest:
        return title, name, group
    inner = api.nested_options(name, group.options)
    if inner is None:
        return None
    return _locate(rest, f"{title}, {name}", api.OptionGroup(inner, []))


def _explain_option(title: str, name: str, group: OptionGroup) -> None:
    say(f"{title}: {_line(name, name, group)}")
    inner = api.nested_options(name, group.options)
    if inner is not None:
        for part in inner.model_fields:
            say(f"  {_line(f'{name}.{part}', part, api.OptionGroup(inner, []))}")


def _algorithm_facts(name: str) -> dict[str, Any]:
    spec = api.get_algorithm_spec(name)
    options = [
        _option_facts(f"{title} options", option, api.OptionGroup(group, [spec]))
        for title, group in api.group_classes(spec).items()
        for option in group.model_fields
    ]
    return {"algorithm": spec.name, "summary": spec.summary, "options": options}


def _option_facts(title: str, name: str, group: OptionGroup) -> dict[str, Any]:
    return {
        "name": name,
        "group": title,
        "default": group.default(name),
        "schema": api.option_schema(name, group.options),
    }


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
