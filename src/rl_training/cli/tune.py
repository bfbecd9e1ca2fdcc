"""`tune`: search for a better configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from rl_training import api
from rl_training.cli.console import (
    JsonOption,
    PluginOption,
    TrustEnvOption,
    note,
    say,
    say_json,
    say_table,
    show_notes,
)
from rl_training.cli.executing import (
    AddressOption,
    Backend,
    BackendOption,
    JobsOption,
    MemoryOption,
    NiceOption,
    ResourcesOption,
    RetriesOption,
    StorageOption,
    limits_of,
    place_of,
)
from rl_training.cli.search_lines import say_search, trial_line
from rl_training.cli.trial_lines import TrialLines
from rl_training.config import ConfigError, dump_yaml_value


def tune(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="CONFIG [key=value ...] | resume DIR",
            help="A configuration to begin from, with overrides; or a search to go on with.",
        ),
    ],
    space: Annotated[
        str | None,
        typer.Option(help="A space file or the name of a packaged one (default: the algorithm's)."),
    ] = None,
    trials: Annotated[
        int | None, typer.Option(help="Trials in all (default: 50); may be raised later.")
    ] = None,
    timeout: Annotated[
        str | None, typer.Option(help="Time after which no other round begins, such as 90m or 8h.")
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(help="eval/return_mean (default), validation/*, train/* or ope/fqe."),
    ] = None,
    mode: Annotated[str | None, typer.Option(help="max or min (default: as known).")] = None,
    sampler: Annotated[str | None, typer.Option(help="tpe (default), random or cmaes.")] = None,
    pruner: Annotated[str | None, typer.Option(help="none (default), median or hyperband.")] = None,
    seeds: Annotated[
        str | None, typer.Option(help="Seeds of every trial (default: 1,2,3).")
    ] = None,
    fresh_seeds: Annotated[
        int | None, typer.Option(help="Seeds of the final score (default: 5; 0 = none).")
    ] = None,
    sample_seed: Annotated[
        int | None, typer.Option(help="Seed of the suggestions (default: 0).")
    ] = None,
    round_size: Annotated[
        int | None, typer.Option(help="Trials suggested together (default: --jobs at first).")
    ] = None,
    fqe_updates: Annotated[
        int | None, typer.Option(help="Gradient updates of each fit of ope/fqe (default: 10000).")
    ] = None,
    output_dir: Annotated[
        str | None,
        typer.Option(help="Directory of the search (default: runs/tune- and the name)."),
    ] = None,
    jobs: JobsOption = None,
    retries: RetriesOption = 2,
    nice: NiceOption = 0,
    memory: MemoryOption = None,
    backend: BackendOption = "local",
    address: AddressOption = None,
    resources: ResourcesOption = None,
    storage: StorageOption = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show the space, what comes next, and how long it takes."),
    ] = False,
    trust_env: TrustEnvOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the result only.")] = False,
    json: JsonOption = False,
    plugin: PluginOption = [],  # noqa: B006
) -> None:
    """Search for the configuration with the best score over several seeds."""
    show_notes(quiet)
    where = Backend(backend, address, resources, storage)
    settings: dict[str, Any] = {
        "metric": metric,
        "mode": mode,
        "sampler": sampler,
        "pruner": pruner,
        "seeds": None if seeds is None else _parse_seeds(seeds),
        "fresh_seeds": fresh_seeds,
        "sample_seed": sample_seed,
        "round_size": round_size,
        "fqe_updates": fqe_updates,
    }
    settings = {name: value for name, value in settings.items() if value is not None}
    seconds = None if timeout is None else _parse_duration(timeout)
    if words[0] == "resume":
        if len(words) != 2:
            raise ConfigError("write: rl-training tune resume DIR")
        given = {"space": space, "output_dir": output_dir, **settings}
        _refuse_settings([name for name, value in given.items() if value is not None])
        directory = Path(words[1])
        search = api.search_in(directory, trust_env=trust_env)
        wanted = trials or api.read_search(directory).wanted
    else:
        overrides = api.parse_assignments(words[1:])
        search = api.Search(words[0], space, overrides=overrides, **settings)
        directory = Path(output_dir or f"runs/tune-{_stem(words[0])}")
        wanted = 50 if trials is None else trials
    limits = limits_of(nice, memory)
    with place_of(where, jobs, [search.config], plugin) as place:
        if dry_run:
            _show_plan(search, directory, wanted, place.jobs, json)
            return
        with TrialLines({}, jobs=place.jobs, quiet=quiet) as lines:
            options = api.RunOptions(
                place.jobs, retries, limits, tuple(plugin), lines.show, place.executor(directory)
            )
            result = api.tune(
                search,
                directory,
                trials=wanted,
                timeout=seconds,
                options=options,
                events=_events(lines, directory),
            )
    _say_result(result, directory, wanted, json)


def _events(lines: TrialLines, directory: Path) -> api.TuneEvents:
    files = api.SweepDirectory(directory.absolute())

    def begin(labels: Mapping[str, str], part: str) -> None:
        lines.expect(labels)
        for name in labels:
            lines.know(name, files.known_status(name))
        lines.say(f"{part}: {len(labels)} runs")

    def end(trial: api.SearchTrial, record: api.SearchRecord) -> None:
        lines.say(trial_line(trial, record))

    return api.TuneEvents(begin, end)


def _refuse_settings(given: Sequence[str]) -> None:
    if given:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise ConfigError(f"a search goes on with its own settings: leave out {flags}")


def _stem(name: str) -> str:
    path = Path(name)
    return path.stem if path.suffix in (".yaml", ".yml") else name.replace("/", "-")


def _parse_seeds(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        raise ConfigError(
            f"--seeds {text!r}: write whole numbers with commas, such as 1,2,3"
        ) from None


def _parse_duration(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd]?)", text.strip())
    if match is None:
        raise ConfigError(f"--timeout {text!r}: write seconds, or a time such as 90m, 8h or 2d")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400}[match[2]]


def _show_plan(search: api.Search, directory: Path, wanted: int, jobs: int, json: bool) -> None:
    """Print the space, the trials that come next, and an estimate of the time."""
    plan = api.plan_search(search, directory, wanted, jobs, lambda label: note(f"trying {label}"))
    if json:
        say_json(plan)
        return
    say_table(["option", "values", "now"], [list(row.values()) for row in plan["space"]])
    keys = list(dict.fromkeys(key for trial in plan["next"] for key in trial["values"]))
    if plan["next"]:
        say()
        rows = [
            [str(trial["trial"]), *(_cell(trial["values"], key) for key in keys)]
            for trial in plan["next"]
        ]
        say_table(["next", *keys], rows)
    say()
    say(
        f"{plan['left']} of {wanted} trials to go, {_seeds(len(search.settings.seeds))} each, in {directory}; about "
        f"{api.duration(plan['seconds'])} with {jobs} runs at a time, by {plan['probes']} short probes"
    )


def _seeds(number: int) -> str:
    return f"{number} seed{'s' * (number > 1)}"


def _cell(values: dict[str, Any], key: str) -> str:
    return dump_yaml_value(values[key]) if key in values else ""


def _say_result(result: api.TuneResult, directory: Path, wanted: int, json: bool) -> None:
    if json:
        say_json(api.search_facts(directory, result.record))
    else:
        say_search(result.record, directory)
    if result.interrupted:
        command = api.resume_search_command(directory, result.search)
        note(f"interrupted and saved; go on with: {command}")
        raise typer.Exit(130)
    if len(result.record.trials) < wanted:
        note(f"the time was up after {len(result.record.trials)} of {wanted} trials")
    fresh = result.record.fresh
    if fresh is not None and fresh.failed:
        for seed, reason in fresh.failed.items():
            note(f"failed: trial {fresh.number} with fresh seed {seed}: {reason}")
        raise typer.Exit(1)
