"""Files that strangers may have made, and files that a crash must not damage.

Reading takes regular files of bounded size only: a FIFO would wait for ever, `/dev/zero` would fill the
memory, and a link could lead anywhere. Writing is atomic: a crash leaves either the old file or the new
one, never half of one.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from rl_training.config import OutputError

MAX_TEXT_BYTES = 64 * 2**20  # of a configuration, a manifest or a file of metrics


class SpecialFileError(OSError):
    """A link, FIFO, device, directory or far too large file where a file of ours is expected."""


def open_regular(path: Path, *, follow_links: bool = False) -> BinaryIO:
    """Open a regular file for reading; a link, FIFO, device or directory is an `OSError`.

    A path that the user typed may be a link (`follow_links`). Inside a run directory there is no reason for
    one, so it is refused there.
    """
    return os.fdopen(_descriptor(path, os.O_RDONLY, follow_links), "rb")


def open_own(path: Path) -> BinaryIO:
    """Open a file of a run to append to or to cut back; made if it is missing, never a link."""
    return os.fdopen(_descriptor(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, False), "rb+")


def _descriptor(path: Path, flags: int, follow_links: bool) -> int:
    flags |= getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    if not follow_links:
        flags |= getattr(os, "O_NOFOLLOW", 0)
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            reason = "it is a link, which is not followed"
            raise SpecialFileError(error.errno, reason, str(path)) from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise SpecialFileError(errno.EINVAL, "it is not a regular file", str(path))
    return descriptor


def read_regular(path: Path, *, limit: int = MAX_TEXT_BYTES, follow_links: bool = False) -> bytes:
    """Read a regular file of at most `limit` bytes; anything else is an `OSError`."""
    with open_regular(path, follow_links=follow_links) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            reason = f"it has {size} bytes, more than {limit}"
            raise SpecialFileError(errno.EFBIG, reason, str(path))
        return file.read(size)


def parse_json(text: str | bytes) -> Any:
    """Parse JSON; whatever is wrong with the text is a `ValueError`, also nesting without end."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_json(path: Path, *, limit: int = MAX_TEXT_BYTES) -> Any:
    """Parse a regular file as JSON; `OSError` if it cannot be read, `ValueError` if it is not JSON."""
    return parse_json(read_regular(path, limit=limit))


def write_bytes(path: Path, content: bytes) -> None:
    """Write to a temporary file, flush it to disk, rename it to `path`."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        aside.unlink(missing_ok=True)
        with aside.open("xb") as file:  # never through a link that lies there
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
    refuse_irregular(path)
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(path)
        yield aside
        aside.replace(path)
    except (OSError, RuntimeError) as error:  # torch reports a full disk as the latter
        reason = getattr(error, "strerror", None) or error
        raise OutputError(f"cannot write {path}: {reason}") from None
    finally:
        # a read-only directory refuses this too, and the reason above is the better error
        with suppress(OSError):
            aside.unlink(missing_ok=True)


def refuse_irregular(path: Path) -> None:
    """Refuse to write to what is there but is not a file: a directory, FIFO, device or dangling link."""
    if os.path.lexists(path) and not path.is_file():
        raise OutputError(f"cannot write {path}: it is not a regular file")


def remove_leftovers(path: Path) -> None:
    """Remove the temporary files for `path` of processes that were killed while they wrote.

    One whose process lives is left alone.
    """
    pattern = re.compile(rf"\.{re.escape(path.name)}\.([0-9]{{1,9}})\.tmp")
    with suppress(OSError), os.scandir(path.parent) as entries:
        for entry in entries:
            match = pattern.fullmatch(entry.name)
            if match and not _is_alive(int(match[1])):
                with suppress(OSError):
                    Path(entry.path).unlink()


def _is_alive(process_id: int) -> bool:
    # a leftover of this number is of an earlier process: this one has not begun
    return process_id != os.getpid() and process_lives(process_id)


def process_lives(process_id: int) -> bool:
    """Tell if there is a process of this number; True where the system has no way to ask."""
    if os.name == "nt":  # where signal 0 would end the process
        return True
    try:
        os.kill(process_id, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # somebody else's
        return True
    return True


def sync_directory(path: Path) -> None:
    """Make renames inside `path` survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
