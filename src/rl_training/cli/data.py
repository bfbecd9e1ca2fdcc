"""`data info|check|convert|collect`: look at datasets, find what is wrong with them, make new ones."""

from __future__ import annotations

import shutil
import sys
import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rl_training import api
from rl_training.cli.console import JsonOption, PluginOption, TrustEnvOption, say, say_json
from rl_training.config import ConfigError

if TYPE_CHECKING:
    from rl_training.api import Finding

app = typer.Typer(help="Look at, check, convert and collect datasets.", no_args_is_help=True)
Location = Annotated[str, typer.Argument(help="A file, builtin:NAME or minari:NAME.")]


@app.command()
def info(dataset: Location, json: JsonOption = False, plugin: PluginOption = []) -> None:  # noqa: B006
    """Show what a dataset holds: sizes, episodes, returns, ranges."""
    description = api.describe_dataset(dataset)
    if json:
        say_json(description)
        return
    for name, value in description.items():
        say(f"{name:20} {_text(value)}")


@app.command()
def check(
    dataset: Location,
    env: Annotated[
        str | None, typer.Option(help="Compare with the spaces of this environment.")
    ] = None,
    json: JsonOption = False,
    plugin: PluginOption = [],  # noqa: B006
) -> None:
    """Report what makes offline training fail silently; exit code 1 if anything is wrong."""
    findings = api.check_dataset(dataset, env_id=env)
    wrong = [finding for finding in findings if api.is_wrong([finding])]
    warned = any(finding.level == "warning" for finding in findings)
    if json:
        say_json([asdict(finding) for finding in findings])
    else:
        for finding in findings:
            say(_finding(finding))
        say(
            f"{dataset}: {len(wrong)} problem{'s' * (len(wrong) != 1)}"
            if wrong
            else f"{dataset}: ok{', but see the warning' * warned}"
        )
    if wrong:
        raise typer.Exit(1)


@app.command()
def convert(
    source: Location,
    target: Annotated[Path, typer.Argument(help="A new .npz, .pt or .hdf5 file.")],
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Drop last rows of episodes with a lost next observation."),
    ] = False,
    discrete_actions: Annotated[
        bool,
        typer.Option(
            "--discrete-actions", help="Read floats as choices: whole numbers or one-hot."
        ),
    ] = False,
    first_action: Annotated[
        int | None, typer.Option(min=0, help="Number of the first choice; the target has 0.")
    ] = None,
    with_next_actions: Annotated[
        bool, typer.Option("--with-next-actions", help="Store the action of the next row.")
    ] = False,
    scale_actions: Annotated[
        float | None, typer.Option(help="Multiply actions, e.g. 2 from [-1, 1] to [-2, 2].")
    ] = None,
    clip_actions: Annotated[
        bool, typer.Option("--clip-actions", help="Clip actions to --env's bounds, else [-1, 1].")
    ] = False,
    env: Annotated[
        str | None, typer.Option(help="Take the action bounds of this environment.")
    ] = None,
    top_fraction: Annotated[float | None, typer.Option(help="Keep the best episodes.")] = None,
    reward_scale: Annotated[float, typer.Option(help="Multiply rewards.")] = 1.0,
    reward_shift: Annotated[float, typer.Option(help="Add to rewards after scaling.")] = 0.0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the target.")] = False,
    json: JsonOption = False,
    plugin: PluginOption = [],  # noqa: B006
) -> None:
    """Write a dataset in another format, or with something about it changed."""
    _require_finite("--reward-scale", reward_scale)
    _require_finite("--reward-shift", reward_shift)
    if scale_actions is not None:
        _require_finite("--scale-actions", scale_actions)
        if not scale_actions > 1 / 3.4e38:
            raise ConfigError(f"--scale-actions must be > 0, got {scale_actions}")
    transitions = api.convert_dataset(
        source,
        target,
        repair=repair,
        discrete_actions=discrete_actions,
        first_action=first_action,
        with_next_actions=with_next_actions,
        scale_actions=scale_actions,
        clip_actions=_clip_bounds(clip_actions, env),
        top_fraction=top_fraction,
        reward_scale=reward_scale,
        reward_shift=reward_shift,
        overwrite=overwrite,
    )
    _say_written(transitions, target, json)


@app.command()
def collect(
    output: Annotated[Path, typer.Option("--output", "-o", help="A new .npz, .pt or .hdf5 file.")],
    env: Annotated[
        str | None, typer.Option(help="The environment (default: the checkpoint's).")
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Act with this policy; without it, act at random.")
    ] = None,
    trust_env: TrustEnvOption = False,
    from_run: Annotated[
        Path | None, typer.Option(help="Export the replay buffer of an online run instead.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="How many transitions (default: 10,000).")
    ] = None,
    noise: Annotated[
        float,
        typer.Option(min=0, help="Gaussian noise on actions, as a share of half their range."),
    ] = 0.0,
    stochastic: Annotated[bool, typer.Option("--stochastic", help="Sample actions.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of environment and actions.")] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the output.")] = False,
    json: JsonOption = False,
    plugin: PluginOption = [],  # noqa: B006
) -> None:
    """Roll out a policy, or export a replay buffer; terminations and truncations are kept apart."""
    if from_run is not None:
        if env or checkpoint or trust_env or steps or noise or stochastic or seed:
            raise ConfigError("--from-run takes transitions as they were made: no other option")
        _say_written(api.export_replay(from_run, output, overwrite=overwrite), output, json)
        return
    _require_finite("--noise", noise)
    transitions = api.collect_dataset(
        output,
        env_id=env,
        checkpoint=checkpoint,
        steps=10_000 if steps is None else steps,
        noise=noise,
        deterministic=not stochastic,
        seed=seed,
        overwrite=overwrite,
        trust_env=trust_env,
    )
    _say_written(transitions, output, json)


def _require_finite(option: str, value: float) -> None:
    if not abs(value) < 3.4e38:  # the largest float32, in which datasets are kept; false for NaN
        raise ConfigError(f"{option} must be finite and below 3.4e38, got {value}")


def _clip_bounds(clip: bool, env: str | None) -> tuple[Any, Any] | None:
    if not clip:
        if env is not None:
            raise ConfigError("--env is used with --clip-actions only")
        return None
    return (-1.0, 1.0) if env is None else api.action_bounds(env)


def _say_written(transitions: int, path: Path, json: bool) -> None:
    if json:
        say_json({"transitions": transitions, "output": str(path)})
        return
    say(f"{transitions} transitions written to {path}")


def _finding(finding: Finding) -> str:
    row = "" if finding.row is None else f" (row {finding.row})"
    lines = [f"{finding.level}: {finding.name}{row}: {finding.message}"]
    if finding.fix:
        lines.append(f"    fix: {finding.fix}")
    return "\n".join(map(_wrapped, lines))


def _wrapped(line: str) -> str:
    """Break a line between words where a terminal would break it anywhere."""
    if not sys.stdout.isatty():
        return line
    columns = shutil.get_terminal_size().columns
    return textwrap.fill(
        line, columns, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )


def _text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "unknown", True: "yes", False: "no"}[value]
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_text(entry)}" for key, entry in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_text, value)) or "none"
    return str(value)
