"""`eval` and `predict`: scores and actions of a trained policy."""

from __future__ import annotations

import json as json_text
from pathlib import Path
from typing import Annotated, Any

import typer

from rl_training import api
from rl_training.cli.console import (
    JsonOption,
    PluginOption,
    TrustEnvOption,
    say,
    say_json,
    say_metrics,
)
from rl_training.config import ConfigError, RLTrainingError


def evaluate(
    checkpoint: Annotated[Path, typer.Argument(help="A checkpoint or a run directory (its last).")],
    episodes: Annotated[int, typer.Option(help="How many episodes.")] = 10,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the episodes.")] = None,
    env: Annotated[
        str | None, typer.Option(help="Another environment with the same spaces.")
    ] = None,
    trust_env: TrustEnvOption = False,
    stochastic: Annotated[bool, typer.Option("--stochastic", help="Sample actions.")] = False,
    video: Annotated[
        bool, typer.Option("--video", help="Record episodes beside the checkpoint.")
    ] = False,
    json: JsonOption = False,
    plugin: PluginOption = [],  # noqa: B006
) -> None:
    """Evaluate a policy on the environment's own reward."""
    path = api.find_checkpoint(checkpoint)
    video_dir = path.parent / f"{path.name}-videos" if video else None
    metrics = api.evaluate(
        path,
        num_episodes=episodes,
        seed=seed,
        env_id=env,
        trust_env=trust_env,
        deterministic=not stochastic,
        video_dir=video_dir,
    )
    if json:
        say_json({**metrics, **({} if video_dir is None else {"videos": str(video_dir)})})
        return
    say_metrics(metrics)
    if video_dir is not None:
        say(f"videos  {video_dir}")


def predict(
    checkpoint: Annotated[Path, typer.Argument(help="A checkpoint or a run directory (its last).")],
    obs: Annotated[str | None, typer.Option(help="'[1, 0, 0]', or a list of such.")] = None,
    input: Annotated[
        str | None,
        typer.Option(
            help="Observations: a dataset (.npz, .pt, .hdf5), builtin:NAME or minari:NAME."
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Write actions to this .npz.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the output.")] = False,
    stochastic: Annotated[bool, typer.Option("--stochastic", help="Sample actions.")] = False,
    json: JsonOption = False,
    plugin: PluginOption = [],  # noqa: B006
) -> None:
    """Print (or write) the policy's actions in the environment's units."""
    if output is not None:
        _check_output(output, input, overwrite)
    values = _observations(obs, input)
    try:
        actions = api.predict(checkpoint, values, deterministic=not stochastic)
    except RLTrainingError:
        raise
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if output is None:
        listed = actions.tolist()
        say_json({"actions": listed}) if json else say(json_text.dumps(listed))
        return
    api.save_actions(output, actions)
    first = next(iter(values.values())) if isinstance(values, dict) else values
    count = len(first) if first.ndim == 2 else 1
    if json:
        say_json({"count": count, "output": str(output)})
        return
    say(f"{count} action{'s' * (count != 1)} written to {output}")


def _check_output(output: Path, source: str | None, overwrite: bool) -> None:
    """Refuse an output before any work is done."""
    if output.suffix != ".npz":
        raise ConfigError(f"--output {output}: write to a .npz file")
    if output.exists():
        if source is not None and Path(source).exists() and output.samefile(source):
            raise ConfigError(f"--output {output} is the --input: write to another file")
        if not overwrite:
            raise ConfigError(f"--output {output} exists; pass --overwrite to replace it")
    api.check_output_dir(output.parent)


def _observations(obs: str | None, source: str | None) -> Any:
    if obs is not None and source is None:
        return api.parse_observations(obs)
    if source is not None and obs is None:
        return api.read_observations(source)
    raise ConfigError("predict needs either --obs '[...]' or --input LOG")
