"""A disk that fails: the n-th file operation of a process crashes it or raises an `OSError`.

Operations are those of `os` and `open` on paths below one directory, as Python calls them. They
are patched for good, so only a process that ends soon should do it.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CRASHED = 77  # exit code of a process that this disk ended
CHANGES = (
    "mkdir", "rmdir", "unlink", "remove", "rename", "replace", "link", "symlink", "fsync", "truncate",
    "ftruncate", "utime", "chmod",
)  # fmt: skip
ERRORS = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO, "EROFS": errno.EROFS, "EACCES": errno.EACCES}
# a full disk stays full; a bad sector may be a single one
LASTING = ("ENOSPC", "EROFS", "EACCES")
FREEING = ("rmdir", "unlink", "remove", "truncate", "ftruncate", "chmod", "utime")  # need no space
MODES = ("crash", "torn crash", "short write", *ERRORS)


@dataclass
class FailingDisk:
    """Counts operations on `root`; number `at` (from 1) fails in the way of `mode`."""

    root: Path
    at: int
    mode: str
    count: int = 0
    log: list[str] = field(default_factory=list)

    def install(self) -> None:
        for name in CHANGES:
            setattr(os, name, self._counted(name, getattr(os, name)))
        os.open = self._counted_os_open(os.open)  # type: ignore[assignment]
        opened = self._counted_open(io.open)
        io.open = builtins.open = opened  # type: ignore[assignment]

    def _counted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*arguments: Any, **options: Any) -> Any:
            if self._concerns(arguments, options):
                self._next(name, arguments[0])
            return function(*arguments, **options)

        return operation

    def _counted_os_open(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def operation(path: Any, flags: int, *arguments: Any, **options: Any) -> Any:
            if self._concerns((path,), options):
                changes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
                self._next("os.open", path, changes=bool(changes))
            return function(path, flags, *arguments, **options)

        return operation

    def _counted_open(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def operation(file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
            if isinstance(file, int) or not self._concerns((file,), {}):
                return function(file, mode, *arguments, **options)
            changes = any(letter in mode for letter in "wax+")
            tears = self.mode in ("torn crash", "short write") and changes
            fails = self._next(f"open({mode!r})", file, changes=changes, raises=not tears)
            opened = function(file, mode, *arguments, **options)
            return TornFile(opened, self) if fails and tears else opened

        return operation

    def _concerns(self, arguments: tuple[Any, ...], options: dict[str, Any]) -> bool:
        first = arguments[0]
        if isinstance(first, int):  # a descriptor: fsync, ftruncate
            try:
                first = Path(f"/proc/self/fd/{first}").readlink()
            except OSError:
                return False
        if "dir_fd" in options and options["dir_fd"] is not None:
            return True  # shutil.rmtree; nobody else does so
        return str(os.fspath(first)).startswith(str(self.root))

    def _next(self, name: str, path: Any, *, changes: bool = True, raises: bool = True) -> bool:
        """Count an operation; True if it is to fail in a way that the caller has to see to."""
        if not changes and self.mode != "EIO":
            return False  # reading works on a full disk, and a crash before it changes nothing
        if self.mode in ("ENOSPC", "short write") and name in FREEING:
            return False
        self.count += 1
        self.log.append(f"{name} {path}")
        due = self.count >= self.at if self.mode in LASTING else self.count == self.at
        if not due:
            return False
        if self.mode == "crash":
            os._exit(CRASHED)
        if self.mode in ERRORS:
            number = ERRORS[self.mode]
            raise OSError(number, os.strerror(number), str(path))
        if raises and self.mode == "torn crash":
            os._exit(CRASHED)
        if raises:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return True


class TornFile:
    """A file of which only half of the first write arrives."""

    def __init__(self, file: Any, disk: FailingDisk) -> None:
        self._file, self._disk = file, disk

    def write(self, content: Any) -> int:
        self._file.write(content[: len(content) // 2])
        self._file.flush()
        if self._disk.mode == "torn crash":
            os._exit(CRASHED)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> TornFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
