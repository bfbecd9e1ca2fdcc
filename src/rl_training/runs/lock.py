"""Lock of a run directory: one process trains a run at a time."""

from __future__ import annotations

import os
import platform
import stat
from collections.abc import Set
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from filelock import FileLock, Timeout

from rl_training.config import OutputError
from rl_training.files import process_lives, read_regular, write_bytes
from rl_training.runs.layout import disk_errors_named

LOCK = ".lock"
# process id and host stand beside the lock, because `filelock` may empty the locked file
HOLDER = ".lock.pid"
_MAX_HOLDER = 512  # bytes of that file
_LOCKS = Path("/proc/locks")  # Linux: every lock of this machine


@dataclass(frozen=True)
class Holder:
    """Process that locks a run, or locked it when it was killed; host is empty if it is not known."""

    process: int
    host: str

    @property
    def is_elsewhere(self) -> bool:
        return is_other_host(self.host)


def is_other_host(name: str) -> bool:
    return name not in ("", platform.node())


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
                write_bytes(self._holder, f"{os.getpid()} {platform.node()}".encode())
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
        holder = read_holder(self.run_dir)
        if holder is None:  # not written yet, or damaged
            return "another process"
        place = f" of {holder.host}" if holder.is_elsewhere else ""
        return f"process {holder.process}{place}"


def read_holder(run_dir: Path) -> Holder | None:
    """Read who locks a run, or did when it was killed; None if the lock was released."""
    try:
        text = read_regular(run_dir / HOLDER, limit=_MAX_HOLDER).decode()
        process, _, host = text.strip().partition(" ")
        return Holder(int(process), host) if int(process) > 0 else None
    except (OSError, ValueError):
        return None


def locks_held() -> Set[tuple[int, int]] | None:
    """List process and inode of every lock of this machine; None where the system does not tell.

    Trying to take a lock would make a run fail that takes it at this moment.
    """
    try:
        lines = _LOCKS.read_text().splitlines()
    except OSError:
        return None
    held = set()
    for line in lines:  # 1: FLOCK  ADVISORY  WRITE 4711 08:01:1234 0 EOF
        words = line.split()
        with suppress(ValueError, IndexError):
            held.add((int(words[4]), int(words[5].rpartition(":")[2])))
    return held


def is_at_work(run_dir: Path, locks: Set[tuple[int, int]] | None) -> bool:
    """Tell if a process holds the lock of a run, without touching it; one of another host is believed to."""
    holder = read_holder(run_dir)
    if holder is None:
        return False
    if holder.is_elsewhere:
        return True
    if locks is None:
        return process_lives(holder.process)
    try:
        return (holder.process, (run_dir / LOCK).lstat().st_ino) in locks
    except OSError:
        return False


def _refuse_special(path: Path) -> None:
    """Refuse a lock file that is a link or a device: locking would open and empty its target."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return  # there is none yet, or locking will say why it cannot be opened
    if not stat.S_ISREG(mode):
        raise OutputError(f"{path} is not a regular file: remove it if the run is yours")
