"""`config.yaml`, enough to run it again, and `metadata.json`, enough to trust the result."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rl_training.config import dump_yaml
from rl_training.files import read_regular, write_bytes, write_json
from rl_training.runs.git_state import git_state
from rl_training.runs.layout import CONFIG, METADATA

REPORTED_PACKAGES = (
    "rl-training",
    "torch",
    "numpy",
    "gymnasium",
    "safetensors",
    "minari",
    "mujoco",
)


def write_run_files(run_dir: Path, config: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    """Describe a new run; `facts` join the metadata."""
    write_bytes(run_dir / CONFIG, dump_yaml(config).encode())
    write_json(run_dir / METADATA, {**metadata(), **facts})


def note_resume(run_dir: Path, config: Mapping[str, Any], checkpoint: Path) -> None:
    """Add an entry under `resumed` to the metadata; what the first process wrote stays."""
    write_bytes(run_dir / CONFIG, dump_yaml(config).encode())
    path = run_dir / METADATA
    try:
        earlier = json.loads(read_regular(path))
    except (OSError, ValueError, RecursionError):
        earlier = None
    if not isinstance(earlier, dict):
        earlier = {}  # damage to it stops nobody from training
    resumed = earlier.get("resumed")
    entry = {**metadata(), "from": str(checkpoint)}
    write_json(
        path, {**earlier, "resumed": [*(resumed if isinstance(resumed, list) else ()), entry]}
    )


def metadata() -> dict[str, Any]:
    """Versions, machine, command line and git state."""
    return {
        "created": datetime.now().astimezone().isoformat(timespec="seconds"),
        "argv": sys.argv,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": package_versions(),
        "git": git_state(),
    }


@cache  # reading them takes ten milliseconds, and every checkpoint holds them
def package_versions() -> Mapping[str, str]:
    """Installed versions of the packages that results depend on."""
    versions = {}
    for package in REPORTED_PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions
