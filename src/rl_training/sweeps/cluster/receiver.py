"""Receiver of one run's files: a node sends them, they are put in place whole.

What is being received lies under names that a crash leaves without harm: a resume removes them, and no
reader of runs looks at them. A checkpoint appears when its last file has come.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from rl_training.files import open_regular, sync_directory
from rl_training.runs.layout import CHECKPOINTS
from rl_training.runs.lock import RunLock
from rl_training.runs.placing import point, put_in_place
from rl_training.sweeps.cluster.tree import (
    POINTERS,
    RunTree,
    UnsafePathError,
    inside,
    list_tree,
    step_name,
)
from rl_training.sweeps.status import parse_status, write_status

CHUNK = 16 * 2**20  # bytes of a file in one message


class Receiver(Protocol):
    """Home of a run, as the node that trains it sees it."""

    def tree(self) -> RunTree:
        """List the files that are at home."""

    def read(self, path: str, offset: int) -> bytes:
        """Return the next bytes of a file; none at its end."""

    def write(self, path: str, offset: int, content: bytes) -> None:
        """Take the next bytes of a file; it shows after `place` or `place_step`."""

    def link(self, path: str, existing: str) -> bool:
        """Take a file that is at home already; False if it is not."""

    def place(self, path: str) -> None:
        """Let a file outside of checkpoints show."""

    def place_step(self, step: int) -> None:
        """Let a checkpoint show."""

    def discard_step(self, step: int) -> None:
        """Forget what has come of a checkpoint."""

    def remove(self, path: str) -> None:
        """Remove a file."""

    def remove_step(self, step: int) -> None:
        """Remove a checkpoint."""

    def point(self, name: str, step: int) -> None:
        """Let `last` or `best` point to a checkpoint."""

    def report(self, status: Mapping[str, Any] | None, log: bytes) -> None:
        """Take a status, if it has changed, and what the trial has printed since the last report."""


class RunReceiver:
    """Puts the files of a run into its directory, which is locked meanwhile."""

    def __init__(self, run_dir: Path, status: Path, log: Path) -> None:
        self.run_dir, self._status, self._log = run_dir, status, log
        run_dir.mkdir(parents=True, exist_ok=True)
        self._lock = RunLock(run_dir)
        self._remove_asides()

    def close(self) -> None:
        """Release the directory; it goes if nothing has come."""
        self._remove_asides()
        self._lock.release()
        if all(entry.name.startswith(".") for entry in self.run_dir.iterdir()):
            shutil.rmtree(self.run_dir, ignore_errors=True)

    def _remove_asides(self) -> None:
        """Remove what was being received, by this process or one that was killed."""
        for pattern in (".*.tmp", f"{CHECKPOINTS}/.step_*.tmp"):
            for path in self.run_dir.glob(pattern):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()

    def tree(self) -> RunTree:
        return list_tree(self.run_dir)

    def read(self, path: str, offset: int) -> bytes:
        with open_regular(inside(self.run_dir, path)) as file:
            file.seek(offset)
            return file.read(CHUNK)

    def write(self, path: str, offset: int, content: bytes) -> None:
        aside = self._aside(path)
        if offset == 0:
            aside.parent.mkdir(parents=True, exist_ok=True)
            aside.unlink(missing_ok=True)  # never through a link that lies there
        with aside.open("xb" if offset == 0 else "rb+") as file:
            file.seek(offset)
            file.write(content)

    def link(self, path: str, existing: str) -> bool:
        source, aside = inside(self.run_dir, existing), self._aside(path)
        aside.parent.mkdir(parents=True, exist_ok=True)
        aside.unlink(missing_ok=True)
        try:
            os.link(source, aside)
        except OSError:  # it is gone, or the disk has no links
            return False
        return True

    def place(self, path: str) -> None:
        target, aside = inside(self.run_dir, path), self._aside(path)
        _sync(aside)
        aside.replace(target)

    def place_step(self, step: int) -> None:
        target, aside = self._step(step), self._step_aside(step_name(step))
        for path in (entry for entry in aside.rglob("*") if entry.is_file()):
            _sync(path)
        sync_directory(aside)
        put_in_place(aside, target)

    def discard_step(self, step: int) -> None:
        shutil.rmtree(self._step_aside(step_name(step)), ignore_errors=True)

    def remove(self, path: str) -> None:
        target = inside(self.run_dir, path)
        target.unlink(missing_ok=True)
        if target.parent != self.run_dir:
            with suppress(OSError):  # it holds others
                target.parent.rmdir()

    def remove_step(self, step: int) -> None:
        target = self._step(step)
        if target.is_dir():
            shutil.rmtree(target)

    def point(self, name: str, step: int) -> None:
        if name not in POINTERS:
            raise UnsafePathError(f"{name!r} is no name of a checkpoint")
        step_name(step)
        point(self.run_dir / CHECKPOINTS, name, step)

    def report(self, status: Mapping[str, Any] | None, log: bytes) -> None:
        if log:
            with self._log.open("ab") as file:
                file.write(log)
        if status is not None:
            write_status(self._status, parse_status(status))

    def _step(self, step: int) -> Path:
        return inside(self.run_dir, f"{CHECKPOINTS}/{step_name(step)}")

    def _step_aside(self, name: str) -> Path:
        """Directory of a checkpoint that is not complete; `mend` knows its name."""
        return self.run_dir / CHECKPOINTS / f".{name}.{os.getpid()}.tmp"

    def _aside(self, path: str) -> Path:
        target = inside(self.run_dir, path)
        parts = target.relative_to(self.run_dir).parts
        if parts[0] == CHECKPOINTS:
            if len(parts) < 3:
                raise UnsafePathError(f"{path!r} is not a file of a checkpoint")
            return self._step_aside(parts[1]).joinpath(*parts[2:])
        return target.with_name(f".{target.name}.{os.getpid()}.tmp")


def _sync(path: Path) -> None:
    with open_regular(path) as file:
        os.fsync(file.fileno())
