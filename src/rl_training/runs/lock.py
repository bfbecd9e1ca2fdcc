"""Lock of a run directory: one process trains a run at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from rl_training.config import OutputError
from rl_training.runs.layout import disk_errors_named

LOCK = ".lock"
# the process id stands beside the lock, because `filelock` may empty the locked file
HOLDER = ".lock.pid"


@contextmanager
def locked(run_dir: Path) -> Iterator[None]:
    """Hold the lock of a run directory; the operating system frees it if the process dies.

    The lock file itself stays: removing it would let two processes lock two files of one name.
    """
    holder = run_dir / HOLDER
    lock = FileLock(run_dir / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise OutputError(f"{run_dir} is being trained by {_holder_name(holder)}") from None
    except OSError as error:
        raise OutputError(f"cannot lock {run_dir}: {error.strerror}") from None
    try:
        with disk_errors_named(run_dir):
            holder.write_text(str(os.getpid()))
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()


def _holder_name(holder: Path) -> str:
    try:
        return f"process {int(holder.read_text())}"
    except (OSError, ValueError):  # not written yet, or the holder is an older version
        return "another process"
