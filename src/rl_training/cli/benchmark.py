"""`benchmark`: the table of a suite, filled by training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rl_training import api
from rl_training.cli.console import (
    JsonOption,
    PluginOption,
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
from rl_training.cli.trial_lines import TrialLines


def benchmark(
    suite: Annotated[
        str, typer.Argument(metavar="SUITE", help="A suite that `list` shows, or a file of one.")
    ],
    output_dir: Annotated[
        str | None,
        typer.Option(help="Directory of runs and scores (default: runs/benchmarks/SUITE)."),
    ] = None,
    only: Annotated[
        list[str],
        typer.Option("--only", help="Rows, columns or configurations to train, such as 'iql*'."),
    ] = [],  # noqa: B006
    page: Annotated[
        str | None,
        typer.Option("--page", help="Also put the table into this Markdown page.", metavar="FILE"),
    ] = None,
    jobs: JobsOption = None,
    retries: RetriesOption = 2,
    nice: NiceOption = 0,
    memory: MemoryOption = None,
    backend: BackendOption = "local",
    address: AddressOption = None,
    resources: ResourcesOption = None,
    storage: StorageOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the result only.")] = False,
    json: JsonOption = False,
    plugin: PluginOption = [],  # noqa: B006
) -> None:
    """Train and score the cells of a suite that have no score yet, and write its table."""
    show_notes(quiet)
    where = Backend(backend, address, resources, storage)
    loaded = api.Suite.load(suite)
    if page is not None:
        api.place_of_table(Path(page), loaded.name)  # an error now, not after the training
    run = api.SuiteRun.of(loaded, output_dir or f"runs/benchmarks/{loaded.name}")
    missing = run.missing(only)
    if not quiet:
        note(f"{len(missing)} runs without a score, in {run.directory}")
    limits = limits_of(nice, memory)
    configs = [trial.config for trial in missing]
    with (
        place_of(where, jobs, configs, plugin) as place,
        TrialLines({t.name: t.label for t in missing}, jobs=place.jobs, quiet=quiet) as lines,
    ):
        options = api.RunOptions(
            place.jobs, retries, limits, tuple(plugin), lines.show, place.executor(run.directory)
        )
        result = run.carry_out(options, only, lines.say)
    written = api.write_table(result)
    if page is not None:
        api.replace_table(Path(page), loaded.name, result.table.markdown())
        written.append(Path(page))
    _say_result(result, written, json)


def _say_result(result: api.SuiteResult, written: list[Path], json: bool) -> None:
    if json:
        facts = {"failed": dict(result.failed), "written": [str(path) for path in written]}
        say_json({"directory": str(result.directory), **result.table.facts(), **facts})
    else:
        rows = [result.table.header, *result.table.rows]
        header, *body = [[cell.replace("`", "") for cell in row] for row in rows]
        say_table(header, body)
        for path in written:
            say(f"written  {path}")
    for label, error in result.failed.items():
        note(f"failed: {label}: {error}")
    if result.interrupted:
        note("interrupted and saved; the same command goes on")
        raise typer.Exit(130)
    if result.failed:
        note(
            f"error: {len(result.failed)} runs have no score; logs are in {result.directory / 'trials'}"
        )
        raise typer.Exit(1)
