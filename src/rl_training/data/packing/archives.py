"""Zip archives of strangers: `.npz` and `.pt` files are such.

An archive is checked before anything is unpacked: the size of its directory, names given twice,
encryption, and sizes that no data has. `verify_members` compares all content with its checksums.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from rl_training.config import DatasetError, first_line
from rl_training.data.packing.sizes import check_unpacked_size
from rl_training.files import open_regular

# Everything that zipfile, zlib and struct raise on bytes that are not what they should be.
DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, OSError, ValueError,
          NotImplementedError, OverflowError, LookupError, MemoryError)  # fmt: skip
_MAX_DIRECTORY = 8 << 20  # bytes: tens of thousands of members; zipfile holds them all in memory
_PIECE = 1 << 20


class _DirectoryLimit:
    """A file that refuses long reads while zipfile reads the directory of the archive."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.limit: int | None = _MAX_DIRECTORY
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable
        self.close = file.close

    def read(self, size: int = -1) -> bytes:
        if self.limit is not None and size > self.limit:
            raise zipfile.BadZipFile("its directory is too long")
        return self._file.read(size)


@contextmanager
def open_archive(path: Path, kind: str) -> Iterator[zipfile.ZipFile]:
    """Open an archive whose members have sensible sizes, or raise a `DatasetError`."""
    label = path.name
    try:
        file = open_regular(path, follow_links=True)
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror}") from None
    with file:
        limited = _DirectoryLimit(file)
        try:
            archive = zipfile.ZipFile(limited)
        except DAMAGE as error:
            reason = "" if "not a zip file" in str(error) else f" ({error})"
            raise DatasetError(f"{label} is not a {kind} file, or is cut off{reason}") from None
        limited.limit = None
        with archive:
            _check_members(archive.infolist(), label, path.stat().st_size)
            yield archive


def _check_members(members: list[zipfile.ZipInfo], label: str, stored: int) -> None:
    names = set()
    for member in members:
        name = member.filename[:80]
        if member.filename in names:
            raise DatasetError(f"{label} holds {name!r} twice. Keep one.")
        names.add(member.filename)
        if member.comment:  # nobody writes one: a damaged length hides the members that follow
            raise DatasetError(f"{label} is damaged: {name!r} hides what follows it")
        if member.flag_bits & 1:
            raise DatasetError(f"{label}: {name!r} is encrypted. Save it without a password.")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise DatasetError(f"{label}: {name!r} is packed in a way that NumPy does not use")
        if member.compress_type == zipfile.ZIP_STORED and member.file_size != member.compress_size:
            raise DatasetError(f"{label}: {name!r} is damaged: it has two sizes")
        check_unpacked_size(f"{label}: {name!r}", member.file_size, member.compress_size)
    check_unpacked_size(label, sum(member.file_size for member in members), stored)


def verify_members(archive: zipfile.ZipFile, label: str, advice: str) -> None:
    """Compare every member with its CRC-32, a piece at a time."""
    for member in archive.infolist():
        try:
            with archive.open(member) as stream:
                while stream.read(_PIECE):
                    pass
        except DAMAGE as error:
            raise DatasetError(f"{label} is damaged: {first_line(error)}{advice}") from None
