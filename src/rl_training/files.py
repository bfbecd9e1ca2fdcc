"""Atomic writes: a crash leaves either the old file or the new one, never half of one."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rl_training.config import OutputError


def write_bytes(path: Path, content: bytes) -> None:
    """Write to a temporary file, flush it to disk, rename it to `path`."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with aside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    write_bytes(path, (json.dumps(value, indent=2) + "\n").encode())


@contextmanager
def written_aside(path: Path) -> Iterator[Path]:
    """Name of a temporary file to write to, renamed to `path` if the block ends without an error."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield aside
        aside.replace(path)
    except (OSError, RuntimeError) as error:  # torch reports a full disk as the latter
        reason = getattr(error, "strerror", None) or error
        raise OutputError(f"cannot write {path}: {reason}") from None
    finally:
        # a read-only directory refuses this too, and the reason above is the better error
        with suppress(OSError):
            aside.unlink(missing_ok=True)


def sync_directory(path: Path) -> None:
    """Make renames inside `path` survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
