"""Cache of packed datasets in files that are mapped into memory instead of read.

A cached dataset is `packed/<key>.bin` (the rows, then the episode ends, then the behaviour's log-probabilities) and `<key>.json`, which
says what the rows are, which version of which file they came from, and their checksum.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from filelock import FileLock, Timeout
from torch import Tensor

from rl_training.config import OutputError
from rl_training.data.packing.layout import RowLayout
from rl_training.data.packing.pack import PackedRows, pack
from rl_training.data.packing.source import FieldSource
from rl_training.files import open_regular, read_json, remove_leftovers

log = logging.getLogger("rl_training")
SCHEMA = 2
NOTE_SECONDS = 10.0  # of waiting for another process, after which the log says so


def cache_dir() -> Path:
    """`$RL_TRAINING_CACHE`, or the user's cache directory."""
    chosen = os.environ.get("RL_TRAINING_CACHE")
    return Path(chosen) if chosen else Path.home() / ".cache" / "rl_training"


def pack_on_disk(
    kind: str, files: Sequence[Path], open_source: Callable[[], AbstractContextManager[FieldSource]]
) -> PackedRows:
    """Memory-mapped rows, from the cache if the files have not changed since."""
    stamp = [[str(f.resolve()), f.stat().st_size, f.stat().st_mtime_ns] for f in sorted(files)]
    paths = [kind, *(str(name) for name, *_ in stamp)]
    key = hashlib.sha256(json.dumps(paths).encode()).hexdigest()[:24]
    path = _packed_directory() / f"{key}.bin"
    packed = _open(path, stamp)
    if packed is not None:
        return packed
    with _building(path):
        packed = _open(path, stamp)  # another process may have packed it in the meantime
        if packed is None:
            with open_source() as source:
                _build(path, stamp, source)
            packed = _open(path, stamp)
    if packed is None:
        raise OutputError(f"{path} could not be read back after it was written")
    return packed


@contextmanager
def _building(path: Path) -> Iterator[None]:
    """Let one process at a time pack a dataset, so that many that start together read its files once."""
    # they stay: removing one would let two processes lock two files of one name
    locks = cache_dir() / "locks"
    lock = FileLock(locks / f"{path.stem}.lock")
    with _writing(path.parent):
        locks.mkdir(exist_ok=True)
        try:
            lock.acquire(timeout=NOTE_SECONDS)
        except Timeout:
            log.info(
                "waiting for another process that packs this dataset (it locks %s)", lock.lock_file
            )
            lock.acquire()
    try:
        yield
    finally:
        lock.release()


def temporary_rows(rows: int, width: int) -> Tensor:
    """Rows in a file that goes away with the tensor."""
    directory = _packed_directory()
    with _writing(directory), tempfile.TemporaryFile(dir=directory) as file:
        _reserve(file, rows * width * 4)
        return torch.from_numpy(np.memmap(file, np.float32, "r+", shape=(rows, width)))


def _packed_directory() -> Path:
    directory = cache_dir() / "packed"
    with _writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
    return directory


@contextmanager
def _writing(directory: Path) -> Iterator[None]:
    """Turn any failed write into an error that points to `RL_TRAINING_CACHE`."""
    try:
        yield
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(
            f"cannot write to {directory}: {error.strerror or error}. "
            "Set RL_TRAINING_CACHE to another directory."
        ) from None


def _reserve(file: IO[bytes], size: int) -> None:
    """Claim the space now: a full disk noticed while writing to a mapping kills the process."""
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
        else:
            file.truncate(size)
    except OSError as error:
        raise OutputError(
            f"cannot write {size / 1e9:.1f} GB to {cache_dir()}: {error.strerror}. "
            "Set RL_TRAINING_CACHE to another directory."
        ) from None


def _build(path: Path, stamp: list[list[Any]], source: FieldSource) -> None:
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")

    def allocate(rows: int, width: int) -> Tensor:
        with _writing(path.parent), aside.open("w+b") as file:
            _reserve(file, rows * width * 4)
            return torch.from_numpy(np.memmap(file, np.float32, "r+", shape=(rows, width)))

    remove_leftovers(path)
    try:
        packed = pack(source, allocate)
        with _writing(path.parent):
            with aside.open("ab") as file:
                if packed.ends is not None:
                    file.write(packed.ends.tobytes())
                if packed.behavior_log_probs is not None:
                    file.write(packed.behavior_log_probs.numpy().tobytes())
            sidecar = _describe(packed, stamp, _checksum(aside))
            aside.replace(path)
            aside.write_text(json.dumps(sidecar, indent=2), encoding="utf-8")
            aside.replace(path.with_suffix(".json"))
    finally:
        with suppress(OSError):  # a read-only directory refuses this even if there is no such file
            aside.unlink(missing_ok=True)


def _describe(packed: PackedRows, stamp: list[list[Any]], checksum: str) -> dict[str, Any]:
    layout = packed.layout
    return {
        "schema": SCHEMA,
        "files": stamp,
        "sha256": checksum,
        "rows": packed.rows.shape[0],
        "columns": {
            "obs_dim": layout.obs_dim,
            "action_width": layout.action_width,
            "discrete": layout.discrete,
            "has_next_actions": layout.has_next_actions,
        },
        "boundaries": packed.boundaries,
        "behavior_log_probs": packed.behavior_log_probs is not None,
        "episodes": None if packed.ends is None else len(packed.ends),
        "num_actions": packed.num_actions,
        "first_action": packed.first_action,
        "notes": packed.notes,
        "source": packed.source,
    }


def _open(path: Path, stamp: list[list[Any]]) -> PackedRows | None:
    """Map the cached rows of these files; None when they have to be packed (again)."""
    try:
        sidecar = read_json(path.with_suffix(".json"))
        if sidecar["schema"] != SCHEMA or sidecar["files"] != stamp:
            return None
        if _checksum(path) != sidecar["sha256"]:
            raise ValueError("its checksum does not match")
        return _map(path, sidecar)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
        problem = "cannot be read" if isinstance(error, OSError) else "is damaged"
        warnings.warn(f"cached dataset {path} {problem} ({error}); building it again", stacklevel=2)
        return None


def _map(path: Path, sidecar: dict[str, Any]) -> PackedRows:
    layout = RowLayout(**sidecar["columns"])
    shape = (sidecar["rows"], layout.width)
    rows = _map_array(path, shape)
    position = rows.numel() * 4
    ends = None
    if sidecar["episodes"] is not None:
        with path.open("rb") as file:
            file.seek(position)
            content = file.read(8 * sidecar["episodes"])
            ends = np.frombuffer(content, np.int64).copy()  # torch wants it writable
        if len(ends) != sidecar["episodes"]:
            raise ValueError("its episode ends are incomplete")
        position += len(content)
    log_probs = None
    if sidecar["behavior_log_probs"]:
        log_probs = _map_array(path, shape[:1], position)
    return PackedRows(
        rows,
        layout,
        sidecar["boundaries"],
        ends,
        sidecar["num_actions"],
        tuple(sidecar["notes"]),
        sidecar["source"],
        in_memory=False,
        first_action=sidecar["first_action"],
        behavior_log_probs=log_probs,
    )


def _map_array(path: Path, shape: tuple[int, ...], position: int = 0) -> Tensor:
    """Map numbers shared: a private mapping counts as memory, which larger data would exceed."""
    try:
        # Nothing writes to it; the checksum would tell.
        return torch.from_numpy(np.memmap(path, np.float32, "r+", offset=position, shape=shape))
    except OSError:  # a read-only mount, or the cache of another user
        array = np.memmap(path, np.float32, "r", offset=position, shape=shape)
    with warnings.catch_warnings():
        # torch has no read-only tensors and warns of writes, of which there are none.
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        return torch.from_numpy(array)


def _checksum(path: Path) -> str:
    digest = hashlib.sha256()
    with open_regular(path) as file:
        while piece := file.read(1 << 18):
            digest.update(piece)
    return digest.hexdigest()
