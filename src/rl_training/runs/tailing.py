"""Files that grow or are replaced while they are watched: read again only where they have changed."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar

from rl_training.files import open_regular
from rl_training.runs.layout import MAX_METRICS_BYTES

T = TypeVar("T")
_PIECE = 1 << 20  # bytes read at a time; a longer line is none of ours and is left out
_GUARD = (
    64  # bytes before the position, by which a file that was cut back and grew again is noticed
)
_Signature = tuple[int, int, int]  # inode, size, time of modification


class ChangingFile(Generic[T]):
    """Value read from a file, which is read again when the file has been replaced or written to."""

    def __init__(self, path: Path, read: Callable[[Path], T]) -> None:
        self.path = path
        self._read = read
        self._signature: _Signature | None = None
        self._value: T | None = None
        self._is_read = False

    def value(self) -> T:
        signature = _signature(self.path)
        if not self._is_read or signature != self._signature:
            self._value, self._signature, self._is_read = self._read(self.path), signature, True
        return self._value  # type: ignore[return-value]


class GrowingLines:
    """Lines of a file that others append to; each call of `new_lines` returns those that are new.

    A resumed run cuts its file back to a checkpoint. Then `restarted` is called and all lines come again.
    """

    def __init__(self, path: Path, restarted: Callable[[], None]) -> None:
        self.path = path
        self.written = 0.0  # when the file was written to, in seconds since the epoch
        self._restarted = restarted
        self._signature: _Signature | None = None
        self._position = 0
        self._before = b""  # last bytes before the position
        self._skips = False  # the rest of a line that is too long

    def new_lines(self) -> Iterator[bytes]:
        """Yield complete new lines; none if the file is missing, no regular file, or too large."""
        signature = _signature(self.path)
        if signature == self._signature:
            return
        with suppress(OSError), open_regular(self.path) as file:
            if os.fstat(file.fileno()).st_size > MAX_METRICS_BYTES:
                return
            self.written = os.fstat(file.fileno()).st_mtime
            file.seek(self._position - len(self._before))
            if file.read(len(self._before)) != self._before:
                self._begin_anew()
                file.seek(0)
            while piece := file.read(_PIECE):
                yield from self._take(piece)
                if len(piece) < _PIECE:
                    break
                file.seek(self._position)
        self._signature = signature

    def _take(self, piece: bytes) -> Iterator[bytes]:
        """Yield the complete lines of a piece, and go past them."""
        end = piece.rfind(b"\n") + 1
        if end == 0 and len(piece) < _PIECE:
            return  # still being written
        lines = piece[:end].split(b"\n")[:-1]
        if self._skips and end:
            del lines[0]
        self._skips = self._skips and not end
        if end == 0:
            self._skips, end = True, len(piece)
        self._position += end
        self._before = (self._before + piece[:end])[-_GUARD:]
        yield from lines

    def _begin_anew(self) -> None:
        self._position, self._before, self._skips = 0, b"", False
        self._restarted()


def _signature(path: Path) -> _Signature | None:
    """Tell versions of a file apart; None if there is no regular file."""
    try:
        status = path.lstat()
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
