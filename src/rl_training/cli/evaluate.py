"""`eval`: score a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

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
