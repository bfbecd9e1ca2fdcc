"""Runs of a given configuration, found in the directory that they were written to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rl_training.config import CheckpointError, RLTrainingError, dump_yaml, parse_yaml
from rl_training.files import read_regular
from rl_training.runs.layout import CHECKPOINTS, CONFIG, runs_below, step_directories


def newest_run_of(config: Mapping[str, Any], output_dir: str | Path) -> Path | None:
    """Find the newest run in `output_dir` with exactly this configuration and a checkpoint."""
    wanted = _comparable(parse_yaml(dump_yaml(config)))  # as it would be read from a file
    runs = reversed(runs_below(Path(output_dir).expanduser()))
    return next((run for run in runs if _is_wanted(run, wanted)), None)


def check_is_run_of(run: Path, config: Mapping[str, Any]) -> None:
    """Refuse a run of another configuration."""
    if _read(run / CONFIG) != _comparable(parse_yaml(dump_yaml(config))):
        raise CheckpointError(
            f"{run} holds a run of another configuration: remove it, or train in another directory"
        )


def _is_wanted(run: Path, wanted: dict[str, Any] | None) -> bool:
    return _read(run / CONFIG) == wanted and bool(step_directories(run / CHECKPOINTS))


def _read(path: Path) -> dict[str, Any] | None:
    try:
        return _comparable(parse_yaml(read_regular(path).decode(), str(path)))
    except (OSError, UnicodeDecodeError, RLTrainingError):  # a run that is none of ours
        return None


def _comparable(config: Any) -> dict[str, Any] | None:
    """Drop where the run lies, which says nothing about it."""
    if not isinstance(config, dict):
        return None
    return {key: value for key, value in config.items() if key != "output_dir"}
