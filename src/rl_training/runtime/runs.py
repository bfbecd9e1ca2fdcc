"""A run directory: configuration, metadata, metrics and checkpoints of one run."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rl_training.config import OutputError, dump_yaml
from rl_training.runtime.files import write_bytes, write_json

REPORTED_PACKAGES = (
    "rl-training",
    "torch",
    "numpy",
    "gymnasium",
    "safetensors",
    "minari",
    "mujoco",
)


def check_output_dir(output_dir: str | Path) -> None:
    """Fail before any work is done if runs cannot be written there."""
    place = Path(output_dir).expanduser().absolute()
    while not place.exists():
        place = place.parent
    if not place.is_dir():
        raise OutputError(f"output_dir {str(output_dir)!r}: {place} is a file, not a directory")
    if not os.access(place, os.W_OK | os.X_OK):
        raise OutputError(f"output_dir {str(output_dir)!r}: {place} is not writable")


def create_run_dir(output_dir: str | Path, algo: str, env_id: str | None, seed: int) -> Path:
    """`<output_dir>/<algo>__<env>__seed<k>__<timestamp>`, never an existing one."""
    environment = (env_id or "logs").replace("/", "-").replace(":", "-")
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    base = Path(output_dir).expanduser() / f"{algo}__{environment}__seed{seed}__{stamp}"
    for number in range(1, 1000):
        path = base if number == 1 else base.with_name(f"{base.name}-{number}")
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise OutputError(f"cannot create {path}: {error.strerror}") from None
        return path
    raise OutputError(f"cannot find a free name beside {base}")


def write_run_files(run_dir: Path, config: dict[str, Any], facts: dict[str, Any]) -> None:
    """`config.yaml`, enough to run it again, and `metadata.json`, enough to trust it."""
    write_bytes(run_dir / "config.yaml", dump_yaml(config).encode())
    write_json(run_dir / "metadata.json", {**metadata(), **facts})


def note_resume(run_dir: Path, config: dict[str, Any], checkpoint: Path) -> None:
    """Who began the run stays on record; who went on is added."""
    write_bytes(run_dir / "config.yaml", dump_yaml(config).encode())
    path = run_dir / "metadata.json"
    try:
        known = json.loads(path.read_text())
    except (OSError, json.JSONDecodeError):
        known = {}
    entry = {**metadata(), "from": str(checkpoint)}
    write_json(path, {**known, "resumed": [*known.get("resumed", []), entry]})


def metadata() -> dict[str, Any]:
    """Versions, machine, command line and code state."""
    return {
        "created": datetime.now().astimezone().isoformat(timespec="seconds"),
        "argv": sys.argv,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": package_versions(),
        "git": git_state(),
    }


def package_versions() -> dict[str, str]:
    found = {}
    for package in REPORTED_PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def git_state() -> dict[str, Any] | None:
    """Commit of the working directory, and whether it has uncommitted changes."""
    if shutil.which("git") is None:
        return None
    try:
        commit = _git("rev-parse", "HEAD")
        return {"commit": commit, "dirty": bool(_git("status", "--porcelain"))}
    except (subprocess.SubprocessError, OSError):
        return None


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], capture_output=True, text=True, timeout=10, check=True)
    return done.stdout.strip()
