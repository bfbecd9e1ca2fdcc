"""Runs of a given configuration, found in the directory that they were written to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rl_training.config import RLTrainingError, dump_yaml, parse_yaml
from rl_training.files import read_regular
from rl_training.runs.layout import CHECKPOINTS, CONFIG


def newest_run_of(config: Mapping[str, Any], output_dir: str | Path) -> Path | None:
    """Run in `output_dir` with exactly this configuration and a checkpoint, written to last."""
    wanted = _comparable(parse_yaml(dump_yaml(config)))  # as it would be read from a file
    runs = [
        path.parent
        for path in Path(output_dir).expanduser().glob(f"*/{CONFIG}")
        if _read(path) == wanted and any((path.parent / CHECKPOINTS).glob("step_*"))
    ]
    return max(runs, key=lambda run: (run / CONFIG).stat().st_mtime_ns, default=None)


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
