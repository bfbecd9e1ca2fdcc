"""Checkpoint format: a directory with `manifest.json` and safetensors files, written atomically.

Reading one executes no code. The manifest carries configuration and problem, so that loading a
policy builds no environment, and the checksum of every other file, so that damage is noticed.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from rl_training.config import CheckpointError
from rl_training.files import sha256_of, sync_directory, write_bytes, write_json
from rl_training.spec import ProblemSpec

SCHEMA_VERSION = 1
STEP_PREFIX = "step_"
# which file a tensor goes to, by the first part of its name; policies need only the first
_FILES = {
    "networks": "model.safetensors",
    "normalizer": "model.safetensors",
    "optimizers": "optimizer.safetensors",
    "replay": "replay.safetensors",
}
REPLAY_FILE = _FILES["replay"]
_STATE_FILE = "state.safetensors"
_MANIFEST: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("config", "spec", "progress", "algorithm", "callbacks", "dataset"), dict),
    "files": dict,
    "reward_scale": (int, float),
    "metrics_position": int,
}


@dataclass(frozen=True)
class Checkpoint:
    """Contents of a checkpoint directory."""

    path: Path
    manifest: dict[str, Any]
    tensors: dict[str, Tensor]

    @property
    def step(self) -> int:
        return int(self.manifest["progress"]["global_step"])

    @property
    def run_dir(self) -> Path | None:
        """Directory of the run it belongs to; none for a copy that lies elsewhere."""
        parent = self.path.parent
        return parent.parent if parent.name == "checkpoints" else None


def write_checkpoint(directory: Path, manifest: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Write under a temporary name and rename; an existing directory is replaced."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    aside = directory.with_name(f".{directory.name}.{os.getpid()}.tmp")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    grouped: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        file = _FILES.get(name.split(".")[0], _STATE_FILE)
        grouped.setdefault(file, {})[name] = tensor.detach().cpu().contiguous()
    checksums = {}
    for file, group in grouped.items():
        content = save_tensors(group)
        checksums[file] = sha256_of(content)
        write_bytes(aside / file, content)
    write_json(aside / "manifest.json", {"schema": SCHEMA_VERSION, **manifest, "files": checksums})
    sync_directory(aside)
    replaced = directory.with_name(f".{directory.name}.{os.getpid()}.old")
    if directory.exists():
        directory.rename(replaced)
    aside.rename(directory)
    sync_directory(directory.parent)
    shutil.rmtree(replaced, ignore_errors=True)


def read_checkpoint(path: Path, *, policy_only: bool = False) -> Checkpoint:
    """Read and verify; `policy_only` leaves optimizers and random streams on disk."""
    manifest = _read_manifest(path)
    tensors: dict[str, Tensor] = {}
    for file, checksum in manifest["files"].items():
        if policy_only and file != "model.safetensors":
            continue
        try:
            content = (path / file).read_bytes()
        except OSError:
            if file == REPLAY_FILE and not _is_newest(path):
                continue
            raise _damaged(path, f"{file} is missing") from None
        if sha256_of(content) != checksum:
            raise _damaged(path, f"{file} does not match its checksum")
        try:
            tensors |= load_tensors(content)
        except SafetensorError as error:
            raise _damaged(path, f"{file}: {error}") from None
    return Checkpoint(path, manifest, tensors)


def _is_newest(path: Path) -> bool:
    """Tell whether a checkpoint must have its replay; those of older ones are dropped."""
    steps = step_directories(path.parent)
    return bool(steps) and path.resolve() == steps[-1].resolve()


def drop_older_replays(checkpoints: Path) -> None:
    """Delete the replay, the bulk of a checkpoint, from all but the newest."""
    for older in step_directories(checkpoints)[:-1]:
        (older / REPLAY_FILE).unlink(missing_ok=True)


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((path / "manifest.json").read_text())
    except FileNotFoundError:
        raise CheckpointError(f"{path} is not a checkpoint: it has no manifest.json") from None
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise _damaged(path, "manifest.json is not JSON") from None
    if not isinstance(manifest, dict) or not isinstance(manifest.get("schema"), int):
        raise _damaged(path, "manifest.json is incomplete")
    if manifest["schema"] > SCHEMA_VERSION:
        raise CheckpointError(
            f"{path} was written by a newer version of rl-training "
            f"(schema {manifest['schema']}, this one reads up to {SCHEMA_VERSION})"
        )
    for key, kind in _MANIFEST.items():
        if not isinstance(manifest.get(key), kind):
            raise _damaged(path, f"{key!r} of manifest.json is missing or not what it should be")
    try:
        ProblemSpec.from_dict(manifest["spec"])
    except (KeyError, TypeError, ValueError):
        raise _damaged(path, "'spec' of manifest.json is not a problem") from None
    return manifest


def _damaged(path: Path, what: str) -> CheckpointError:
    others = [other for other in step_directories(path.parent) if other.resolve() != path.resolve()]
    hint = f"; an earlier one: {others[-1]}" if others else ""
    return CheckpointError(f"checkpoint {path} is damaged: {what}{hint}")


def step_directories(checkpoints: Path) -> list[Path]:
    """List complete step checkpoints in order of step."""
    complete = [
        path
        for path in checkpoints.glob(f"{STEP_PREFIX}*")
        if path.name.removeprefix(STEP_PREFIX).isdigit() and (path / "manifest.json").exists()
    ]
    return sorted(complete, key=read_step)


def read_step(step_directory: Path) -> int:
    return int(step_directory.name.removeprefix(STEP_PREFIX))


def point(checkpoints: Path, name: str, step: int) -> None:
    """Let `last` or `best` point to a step directory, atomically."""
    aside = checkpoints / f".{name}.{os.getpid()}.tmp"
    aside.unlink(missing_ok=True)
    aside.symlink_to(f"{STEP_PREFIX}{step}")
    link = checkpoints / name
    if link.is_dir() and not link.is_symlink():
        shutil.rmtree(link)  # a copy of the run that turned links into directories
    aside.replace(link)


def remove_leftovers(checkpoints: Path) -> None:
    """Delete temporary files of a save that a crash cut short."""
    for path in (*checkpoints.glob(".*.tmp"), *checkpoints.glob(".*.old")):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def find_checkpoint(path: str | Path) -> Path:
    """Resolve a path to a checkpoint: itself, or the newest one of a run directory."""
    target = Path(path)
    if not target.exists():
        if target.is_symlink():
            raise _damaged(target, "it points to a checkpoint that is gone")
        raise CheckpointError(f"{path}: no such file or directory")
    if not target.is_dir():
        raise CheckpointError(f"{path} is a file; a checkpoint is a directory")
    if (target / "manifest.json").exists():
        return target.resolve()
    if any(target.glob("*.safetensors")):
        raise _damaged(target, "manifest.json is missing")
    checkpoints = target if target.name == "checkpoints" else target / "checkpoints"
    # the newest, not `last`: a crash may have come between saving and pointing
    steps = step_directories(checkpoints)
    if steps:
        return steps[-1].resolve()
    if checkpoints.is_dir() or (target / "config.yaml").exists():
        raise CheckpointError(
            f"{path} has no checkpoint yet: start it again with `rl-training train`"
        )
    raise CheckpointError(f"{path} is neither a checkpoint nor a run directory")
