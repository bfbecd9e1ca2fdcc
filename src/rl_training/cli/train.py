"""`train` and `resume`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rl_training import api
from rl_training.cli import completion
from rl_training.cli.console import (
    JsonOption,
    PluginOption,
    TrustEnvOption,
    note,
    say,
    say_json,
    say_metrics,
    show_notes,
)
from rl_training.cli.trial_lines import TrialLines
from rl_training.config import ConfigError

if TYPE_CHECKING:
    from rl_training.api import TrainResult

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print the result only.")]


def train(
    config: Annotated[
        str,
        typer.Argument(
            help="A YAML file or a packaged name (td3_bc/pendulum).",
            autocompletion=completion.configs,
        ),
    ],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="key=value ...; dotted, or bare where unambiguous.")
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="Several runs: 1,2,3.")] = None,
    jobs: Annotated[
        int | None, typer.Option(help="Seeds at a time, each in a process (default: the cores).")
    ] = None,
    stack: Annotated[bool, typer.Option("--stack", hidden=True)] = False,
    output_dir: Annotated[str | None, typer.Option(help="Where to create the run.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, auto.")] = None,
    auto_resume: Annotated[
        bool,
        typer.Option(
            "--auto-resume",
            help="Go on with an interrupted run of this configuration in the output directory.",
        ),
    ] = False,
    quiet: Quiet = False,
    json: JsonOption = False,
    plugin: PluginOption = [],  # noqa: B006
) -> None:
    """Train a policy into a new run directory."""
    show_notes(quiet)
    if stack:
        raise ConfigError("--stack was removed: --seeds runs the seeds side by side in processes")
    if jobs is not None and seeds is None:
        raise ConfigError("--jobs is for several seeds: --seeds 1,2,3")
    values = api.parse_assignments(overrides or [])
    if seeds is not None and "seed" in values:
        raise ConfigError(
            f"seed is given twice: leave out --seeds {seeds} or seed={values['seed']}"
        )
    loaded = api.load_config(config, _with_options(values, output_dir=output_dir, device=device))
    numbers = [loaded.seed] if seeds is None else _parse_seeds(seeds)
    if len(numbers) == 1:
        single = loaded.replace(seed=numbers[0])
        results = [api.train(single, progress_bar=not quiet, auto_resume=auto_resume)]
    else:
        trials = api.seed_trials(loaded, numbers, auto_resume=auto_resume)
        jobs = api.machine.default_jobs() if jobs is None else jobs
        labels = {trial.name: f"seed {trial.config.seed}" for trial in trials}
        try:
            with TrialLines(labels, jobs=jobs, quiet=quiet) as lines:
                options = api.RunOptions(jobs, 0, plugins=tuple(plugin), report=lines.show)
                results = api.run_seeds(trials, options)
        except api.SeedsFailedError as error:
            _say_results(error.results, json)
            raise
    _say_results(results, json)
    _exit_if_interrupted(results, len(numbers))


def resume(
    run: Annotated[Path, typer.Argument(help="A run directory or a checkpoint.")],
    total_timesteps: Annotated[int | None, typer.Option(help="Train up to this step.")] = None,
    ignore_stop: Annotated[
        bool, typer.Option("--ignore-stop", help="Go on after an early stop.")
    ] = False,
    online: Annotated[
        bool, typer.Option("--online", help="Let an offline run go on in an environment.")
    ] = False,
    env: Annotated[
        str | None, typer.Option(help="The environment of --online (default: the run's).")
    ] = None,
    trust_env: TrustEnvOption = False,
    quiet: Quiet = False,
    json: JsonOption = False,
    plugin: PluginOption = [],  # noqa: B006
) -> None:
    """Go on from a checkpoint, bit for bit as if nothing had happened."""
    show_notes(quiet)
    result = api.resume(
        run,
        total_timesteps=total_timesteps,
        ignore_stop=ignore_stop,
        online=online,
        env_id=env,
        trust_env=trust_env,
        progress_bar=not quiet,
    )
    _say_results([result], json)
    _exit_if_interrupted([result])


def _with_options(values: dict[str, Any], **options: str | None) -> dict[str, Any]:
    """Add --options to key=value overrides."""
    added = {key: value for key, value in options.items() if value is not None}
    for key in added.keys() & values.keys():
        raise ConfigError(f"{key} is given twice, also as --{key.replace('_', '-')}")
    return {**values, **added}


def _parse_seeds(text: str) -> list[int]:
    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise ConfigError(
            f"--seeds {text!r}: write whole numbers with commas, such as 1,2,3"
        ) from None


def _say_results(results: Sequence[TrainResult], json: bool) -> None:
    finished = [result for result in results if result.stop_reason != "interrupted"]
    summary = api.summarize_results(finished) if len(finished) > 1 else {}
    if json:
        say_json(_as_json(results, summary))
        return
    for result in results:
        say(f"run         {result.run_dir}")
        say(f"checkpoint  {result.checkpoint_path}")
        say(f"stopped     {result.stop_reason}")
        # seconds are those of the last row only; `report` has the whole run's
        metrics = {k: v for k, v in result.metrics.items() if not k.endswith("_seconds")}
        say_metrics(metrics)
    for name, (mean, spread) in summary.items():
        if name.startswith("eval/"):
            say(f"over {len(finished)} seeds  {name:16}  {mean:.4g} ± {spread:.2g}")


def _as_json(
    results: Sequence[TrainResult], summary: Mapping[str, tuple[float, float | None]]
) -> dict[str, Any]:
    runs = [
        {
            "run": str(result.run_dir),
            "checkpoint": str(result.checkpoint_path),
            "stop_reason": result.stop_reason,
            "metrics": dict(result.metrics),
            "warnings": list(result.warnings),
        }
        for result in results
    ]
    over_seeds = {name: {"mean": mean, "std": std} for name, (mean, std) in summary.items()}
    return {"runs": runs, "over_seeds": over_seeds}


def _exit_if_interrupted(results: Sequence[TrainResult], expected: int = 1) -> None:
    interrupted = [result for result in results if result.stop_reason == "interrupted"]
    for result in interrupted:
        command = api.resume_command(result.run_dir, api.read_run(result.run_dir).env_id)
        note(f"interrupted and saved; go on with: {command}")
    if len(results) < expected:
        note(f"interrupted before {expected - len(results)} of {expected} seeds had begun")
    if interrupted or len(results) < expected:
        raise typer.Exit(130)
