"""`predict`: actions for observations, without an environment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from rl_training.cli.console import PluginOption, say
from rl_training.config import ConfigError


def predict(
    checkpoint: Annotated[Path, typer.Argument(help="A checkpoint or a run directory (its last).")],
    obs: Annotated[str | None, typer.Option(help="'[1, 0, 0]', or a list of such.")] = None,
    input: Annotated[
        Path | None, typer.Option(help="A log (.npz, .pt, .hdf5) of observations.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Write actions to this .npz.")] = None,
    stochastic: Annotated[bool, typer.Option("--stochastic", help="Sample actions.")] = False,
    plugin: PluginOption = [],  # noqa: B006
) -> None:
    """Print (or write) the policy's actions in the environment's units."""
    import numpy as np

    from rl_training.runtime import predict_checkpoint

    if (obs is None) == (input is None):
        raise ConfigError("predict needs either --obs '[...]' or --input LOG")
    values = _parse(obs) if obs is not None else _read(input)
    try:
        actions = predict_checkpoint(checkpoint, values, deterministic=not stochastic)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if output is not None:
        from rl_training.runtime.runs import check_output_dir

        if output.suffix != ".npz":
            raise ConfigError(f"--output {output}: write to a .npz file")
        check_output_dir(output.parent)
        np.savez(output, actions=actions)
        say(f"{len(np.atleast_2d(actions))} actions written to {output}")
    else:
        say(json.dumps(actions.tolist()))


def _parse(text: str) -> Any:
    import numpy as np

    try:
        return np.asarray(json.loads(text), dtype=np.float32)
    except (json.JSONDecodeError, ValueError, TypeError):
        raise ConfigError(f"--obs {text!r}: write a list of numbers, such as '[1, 0, 0]'") from None


def _read(path: Path | None) -> Any:
    from rl_training.data.locations import read_observations

    assert path is not None
    return read_observations(path)
