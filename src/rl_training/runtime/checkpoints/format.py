"""Checkpoint format: a directory with `manifest.json` and safetensors files, written atomically.

Reading one executes no code, follows no link and reads regular files only. The manifest carries
configuration and problem, so that loading a policy builds no environment, and the size and checksum
of every other file, so that damage is noticed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from rl_training.config import CheckpointError
from rl_training.data.memory import machine_memory
from rl_training.files import read_regular, sha256_of, sync_directory, write_bytes
from rl_training.runs.layout import MANIFEST, REPLAY_FOLDER, step_directories
from rl_training.runs.placing import put_in_place
from rl_training.runtime.checkpoints.directories import owner_of
from rl_training.runtime.checkpoints.manifest import damaged, read_manifest, write_manifest
from rl_training.runtime.checkpoints.segments import (
    SavedReplay,
    StoredRows,
    joined,
    write_segments,
)

MODEL_FILE = "model.safetensors"
# which file a tensor goes to, by the first part of its name; policies need only the first
_FILES = {"networks": MODEL_FILE, "normalizer": MODEL_FILE, "optimizers": "optimizer.safetensors"}
_STATE_FILE = "state.safetensors"
_OLD_REPLAY_FILE = "replay.safetensors"  # of schema 1
_NAMES = {*_FILES.values(), _STATE_FILE, _OLD_REPLAY_FILE}
REPLAYS = 2  # checkpoints that keep their replay: the newest, and one to fall back to


class Contents(NamedTuple):
    """All that a run is at one moment."""

    manifest: dict[str, Any]
    tensors: dict[str, Tensor]
    rows: StoredRows | None = None  # of the replay


@dataclass(frozen=True)
class Checkpoint:
    """Contents of a checkpoint directory."""

    path: Path
    manifest: dict[str, Any]
    tensors: dict[str, Tensor]
    replay: SavedReplay | None = None

    @property
    def step(self) -> int:
        return int(self.manifest["progress"]["global_step"])

    @property
    def run_dir(self) -> Path | None:
        """Directory of the run it belongs to; none for a copy that lies elsewhere."""
        return owner_of(self.path)


def write_checkpoint(
    directory: Path, contents: Contents, earlier: SavedReplay | None = None
) -> SavedReplay | None:
    """Write under a temporary name and rename; an existing directory is replaced.

    Rows of the replay that `earlier` holds are linked, not written. Returns the replay as saved.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    aside = directory.with_name(f".{directory.name}.{os.getpid()}.tmp")
    try:
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        grouped: dict[str, dict[str, Tensor]] = {}
        for name, tensor in contents.tensors.items():
            file = _FILES.get(name.split(".")[0], _STATE_FILE)
            grouped.setdefault(file, {})[name] = tensor.detach().cpu().contiguous()
        files = {}
        for file, group in grouped.items():
            content = save_tensors(group)
            files[file] = {"sha256": sha256_of(content), "bytes": len(content)}
            write_bytes(aside / file, content)
        replay, rows = None, contents.rows
        if rows is not None:
            replay = write_segments(aside / REPLAY_FOLDER, rows, earlier)
        write_manifest(
            aside,
            {
                **contents.manifest,
                "files": files,
                "replay": None if replay is None else replay.as_dict(),
            },
        )
        sync_directory(aside)
        put_in_place(aside, directory)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    if replay is None:
        return None
    return SavedReplay(directory / REPLAY_FOLDER, replay.numbers, replay.segments)


def read_checkpoint(path: Path, *, policy_only: bool = False) -> Checkpoint:
    """Read and verify; `policy_only` leaves optimizers, random streams and replay on disk."""
    manifest = read_manifest(path)
    tensors: dict[str, Tensor] = {}
    for name, entry in manifest["files"].items():
        if name not in _NAMES:
            raise damaged(path, f"{name!r} is not a file of a checkpoint")
        if policy_only and name != MODEL_FILE:
            continue
        if name == _OLD_REPLAY_FILE and not (path / name).exists() and not _is_newest(path):
            continue
        # schema 1 has the checksum alone
        facts = entry if isinstance(entry, dict) else {"sha256": entry}
        tensors |= _read_tensors(path, name, facts)
    replay = None if policy_only else _saved_replay(path, manifest)
    if replay is not None:
        columns = _read_segments(path, replay)
        tensors |= {f"replay.{name}": column for name, column in columns.items()}
    return Checkpoint(path, manifest, tensors, replay)


def _read_tensors(path: Path, name: str, facts: Mapping[str, Any]) -> dict[str, Tensor]:
    """Read one file of a checkpoint, after its size, and check it before its use."""
    limit = facts.get("bytes", machine_memory())
    if type(limit) is not int or not 0 <= limit <= machine_memory():
        raise damaged(
            path, f"{name} is said to have {limit} bytes, more than this machine's memory"
        )
    try:
        content = read_regular(path / name, limit=limit)
    except FileNotFoundError:
        raise damaged(path, f"{name} is missing") from None
    except OSError as error:
        raise damaged(path, f"{name}: {error.strerror}") from None
    if sha256_of(content) != facts.get("sha256"):
        raise damaged(path, f"{name} does not match its checksum")
    try:
        tensors: dict[str, Tensor] = load_tensors(content)
    except (SafetensorError, KeyError, ValueError, RuntimeError) as error:
        raise damaged(path, f"{name}: {error}") from None
    return tensors


def _saved_replay(path: Path, manifest: Mapping[str, Any]) -> SavedReplay | None:
    """List the segments; None without a replay, or if that of an older checkpoint was dropped."""
    if manifest.get("replay") is None:
        return None
    try:
        saved = SavedReplay.from_dict(path / REPLAY_FOLDER, manifest["replay"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise damaged(
            path, f"'replay' of its manifest is not a list of segments: {error}"
        ) from None
    if (path / REPLAY_FOLDER).is_symlink():
        raise damaged(path, f"{REPLAY_FOLDER} is a link, which is not followed")
    absent = any(not (saved.directory / segment.name).exists() for segment in saved.segments)
    return None if absent and not _is_newest(path) else saved


def _read_segments(path: Path, saved: SavedReplay) -> dict[str, Tensor]:
    contents = (
        _read_tensors(path, f"{REPLAY_FOLDER}/{s.name}", {"sha256": s.sha256, "bytes": s.bytes})
        for s in saved.segments
    )
    try:
        return joined(saved, contents)
    except CheckpointError as error:
        raise error if str(path) in str(error) else damaged(path, str(error)) from None


def _is_newest(path: Path) -> bool:
    """Tell whether a checkpoint must have its replay; those of older ones are dropped."""
    steps = step_directories(path.parent)
    return not steps or path.absolute() == steps[-1].absolute()


def drop_older_replays(checkpoints: Path) -> None:
    """Delete the replay, the bulk of a checkpoint, from all but the newest."""
    for older in step_directories(checkpoints)[:-REPLAYS]:
        (older / _OLD_REPLAY_FILE).unlink(missing_ok=True)
        if (older / REPLAY_FOLDER).is_dir() and not (older / REPLAY_FOLDER).is_symlink():
            shutil.rmtree(older / REPLAY_FOLDER)


def copy_checkpoint(source: Path, target: Path) -> None:
    """Copy a checkpoint, the files of its manifest only; one that is there is replaced."""
    manifest = read_manifest(source)
    names = [name for name in manifest["files"] if name in _NAMES]
    saved = _saved_replay(source, manifest)
    names += [] if saved is None else [f"{REPLAY_FOLDER}/{s.name}" for s in saved.segments]
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        shutil.rmtree(aside, ignore_errors=True)
        (aside / REPLAY_FOLDER).mkdir(parents=True)
        for name in (*names, MANIFEST):
            with suppress(FileNotFoundError):  # the replay of an older checkpoint, dropped
                write_bytes(aside / name, read_regular(source / name, limit=machine_memory()))
        if not any((aside / REPLAY_FOLDER).iterdir()):
            (aside / REPLAY_FOLDER).rmdir()
        sync_directory(aside)
        put_in_place(aside, target)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
