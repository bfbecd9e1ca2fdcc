"""Lock of a run directory: one process trains a run at a time."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from filelock import FileLock, Timeout

from rl_training.config import OutputError
from rl_training.files import read_regular, write_bytes
from rl_training.runs.layout import disk_errors_named

LOCK = ".lock"
# the process id stands beside the lock, because `filelock` may empty the locked file
HOLDER = ".lock.pid"


class RunLockedError(OutputError):
    """Another process trains the run."""


class RunLock:
    """Lock of a run directory, held from its making until `release` or the end of a `with` block.

    The operating system frees it if the process dies. The lock file itself stays: removing it would
    let two processes lock two files of one name.
    """

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self._holder = run_dir / HOLDER
        _refuse_special(run_dir / LOCK)
        self._lock = FileLock(run_dir / LOCK)
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise RunLockedError(f"{run_dir} is being trained by {self._holder_name()}") from None
        except OSError as error:
            raise OutputError(f"cannot lock {run_dir}: {error.strerror}") from None
        try:
            with disk_errors_named(run_dir):
                write_bytes(self._holder, str(os.getpid()).encode())
        except BaseException:
            self._lock.release()
            raise

    def release(self) -> None:
        if self._lock.is_locked:
            with suppress(OSError):  # a disk that fails must not keep the lock
                self._holder.unlink()
            self._lock.release()

    def __enter__(self) -> RunLock:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()

    def _holder_name(self) -> str:
        try:
            return f"process {int(read_regular(self._holder, limit=32))}"
        except (OSError, ValueError):  # not written yet, or the holder is an older version
            return "another process"


def _refuse_special(path: Path) -> None:
    """Refuse a lock file that is a link or a device: locking would open and empty its target."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return  # there is none yet, or locking will say why it cannot be opened
    if not stat.S_ISREG(mode):
        raise OutputError(f"{path} is not a regular file: remove it if the run is yours")
