"""`sweep`: many runs from one description."""

from __future__ import annotations

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
    Place,
    ResourcesOption,
    RetriesOption,
    StorageOption,
    limits_of,
    place_of,
)
from rl_training.cli.trial_lines import TrialLines
from rl_training.config import ConfigError, dump_yaml_value


def sweep(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="SPACE.yaml [key=value ...] | resume DIR",
            help="A sweep file, with overrides for every run; or a sweep to go on with.",
        ),
    ],
    output_dir: Annotated[
        str | None,
        typer.Option(help="Directory of the sweep (default: runs/ and the file's name)."),
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
        bool, typer.Option("--dry-run", help="Show the runs and how long they will take.")
    ] = False,
    trust_env: TrustEnvOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the result only.")] = False,
    json: JsonOption = False,
    plugin: PluginOption = [],  # noqa: B006
) -> None:
    """Train many runs: every combination of the values in a sweep file, with every seed."""
    show_notes(quiet)
    where = Backend(backend, address, resources, storage)
    description: dict[str, Any] | None = None
    if words[0] == "resume":
        if output_dir is not None or len(words) != 2:
            raise ConfigError("write: rl-training sweep resume DIR")
        directory = Path(words[1]).expanduser()
        trials = api.trials_in(directory, trust_env=trust_env)
    else:
        described = api.Sweep.from_file(words[0], api.parse_assignments(words[1:]))
        directory = Path(output_dir or f"runs/{Path(words[0]).stem}").expanduser()
        trials, description = described.trials(directory), described.as_dict()
    limits = limits_of(nice, memory)
    with place_of(where, jobs, [trial.config for trial in trials], plugin) as place:
        if dry_run:
            _show_plan(trials, directory, place, json)
            return
        with TrialLines({t.name: t.label for t in trials}, jobs=place.jobs, quiet=quiet) as lines:
            files = api.SweepDirectory(directory.absolute())
            for trial in trials:
                lines.know(trial.name, files.known_status(trial.name))
            options = api.RunOptions(
                place.jobs, retries, limits, tuple(plugin), lines.show, place.executor(directory)
            )
            result = api.run_sweep(trials, directory, description=description, options=options)
    _say_result(result, directory, json)


def _show_plan(trials: Sequence[api.Trial], directory: Path, place: Place, json: bool) -> None:
    """Print the runs, what differs, and an estimate of the time."""
    api.check_problems(trials)
    files = api.SweepDirectory(directory.absolute())
    missing = [trial for trial in trials if not files.is_finished(trial.name)]
    estimate = api.estimate(missing, place.full_speed, lambda label: note(f"trying {label}"))
    seconds = dict(zip((trial.name for trial in missing), estimate.seconds, strict=True))
    if json:
        say_json(
            {
                "runs": [
                    {
                        "run": str(directory / trial.name),
                        "differs": dict(trial.differs),
                        "seed": trial.config.seed,
                        "finished": trial.name not in seconds,
                        "seconds": seconds.get(trial.name),
                    }
                    for trial in trials
                ],
                "seconds": estimate.total,
                "jobs": place.jobs,
            }
        )
        return
    keys = list(dict.fromkeys(key for trial in trials for key in trial.differs))
    rows = [
        [
            str(number),
            *_values(trial.differs, keys),
            str(trial.config.seed),
            api.duration(seconds[trial.name]) if trial.name in seconds else "finished",
        ]
        for number, trial in enumerate(trials, 1)
    ]
    say_table(["run", *keys, "seed", "time"], rows)
    say(
        f"{len(missing)} of {len(trials)} runs to train in {directory}; about "
        f"{api.duration(estimate.total)} with {place.jobs} at a time, by {estimate.probes} short probes"
    )


def _values(differs: Mapping[str, Any], keys: Sequence[str]) -> list[str]:
    return [dump_yaml_value(differs[key]) if key in differs else "" for key in keys]


def _say_result(result: api.SweepResult, directory: Path, json: bool) -> None:
    groups = api.summarize_points(result)
    if json:
        say_json(api.sweep_facts(result))
    else:
        keys = list(dict.fromkeys(key for group in groups for key in group.differs))
        rows = [
            [
                *_values(group.differs, keys),
                f"{group.finished} of {group.runs}",
                group.text,
            ]
            for group in groups
        ]
        metric = next((group.metric for group in groups if group.metric), "score")
        say_table([*keys, "runs", metric], rows)
        say(f"runs are in {directory}; compare them with: rl-training report {directory}")
    for trial, outcome in result.failed:
        note(f"failed: {trial.label}: {outcome.error}")
    if result.interrupted:
        note(f"interrupted and saved; go on with: {api.resume_sweep_command(result)}")
        raise typer.Exit(130)
    if result.failed:
        note(
            f"error: {len(result.failed)} of {len(result.trials)} runs failed; logs are in {directory / 'trials'}"
        )
        raise typer.Exit(1)
