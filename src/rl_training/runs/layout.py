"""A run directory: configuration, metadata, metrics and checkpoints of one run."""

from __future__ import annotations

import errno
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rl_training.config import OutputError, dump_yaml
from rl_training.files import write_bytes, write_json

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

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
    try:
        while not place.exists():
            place = place.parent
    except OSError as error:
        raise OutputError(f"output_dir {str(output_dir)!r}: {error.strerror}") from None
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


RESULT = "result.json"


@contextmanager
def locked(run_dir: Path) -> Iterator[None]:
    """One process trains a run at a time; the system forgets the lock if it dies."""
    if fcntl is None:
        yield
        return
    path = run_dir / ".lock"
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            raise OutputError(
                f"{run_dir} is being trained by process {file.read().strip() or 'another'}"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
        path.unlink(missing_ok=True)


@contextmanager
def naming_the_place(path: Path) -> Iterator[None]:
    """A full or read-only disk is not a fault of the run: say where it is."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EACCES):
            raise
        raise OutputError(f"cannot write to {path}: {error.strerror}") from error


def write_result(
    run_dir: Path,
    step: int,
    reason: str | None,
    metrics: dict[str, float],
    seconds: dict[str, float],
) -> None:
    """The last thing a run does: without it, its end is still to come."""
    result = {"step": step, "stop_reason": reason, "metrics": metrics, "seconds": seconds}
    write_json(run_dir / RESULT, result)


def finished_step(run_dir: Path) -> int | None:
    """The step at which the run came to its end, if it did."""
    try:
        return int(json.loads((run_dir / RESULT).read_text())["step"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


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


@cache  # reading them takes ten milliseconds, in every checkpoint
def package_versions() -> Mapping[str, str]:
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
