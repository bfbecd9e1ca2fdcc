"""Reads .npz files as streams: members are unpacked piece by piece and pickles never."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from rl_training.config import DatasetError
from rl_training.data.packing.source import Array, FieldInfo, is_remark

_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, OSError, ValueError)


class NpzSource:
    """The arrays of one open archive."""

    def __init__(self, archive: zipfile.ZipFile, label: str) -> None:
        self.label = label
        self.fields: dict[str, FieldInfo] = {}
        self.remarks: dict[str, str | int] = {}
        self._members: dict[str, _Member] = {}
        for entry in archive.infolist():
            name = entry.filename.removesuffix(".npy")
            if name == entry.filename:
                continue
            member = _Member(archive, entry)
            if is_remark(name, *member.info):
                self.remarks[name] = member.read(0, 1).item()
            else:
                self.fields[name], self._members[name] = member.info, member
        if not self._members:
            raise DatasetError(f"{label} holds no arrays")

    def read(self, field: str, start: int, stop: int) -> Array:
        member = self._members[field]
        if member.info.dtype.hasobject:
            raise DatasetError(f"{self.label}: {field!r} holds Python objects, which are not read")
        try:
            return member.read(start, stop)
        except _DAMAGE as error:
            raise DatasetError(f"{self.label}: {field!r} is damaged: {error}") from None


@contextmanager
def open_npz(path: Path) -> Iterator[NpzSource]:
    """A readable .npz, or an error that says what the file is instead."""
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, EOFError):
        raise DatasetError(f"{path.name} is not a .npz file, or is cut off") from None
    with archive:
        try:
            source = NpzSource(archive, path.name)
        except _DAMAGE as error:
            if isinstance(error, DatasetError):
                raise
            raise DatasetError(f"{path.name} is damaged: {error}") from None
        yield source


class _Member:
    """One array of the archive; reading rows in rising order needs one pass over it."""

    def __init__(self, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> None:
        self._archive = archive
        self._entry = entry
        with archive.open(entry) as stream:
            version = np.lib.format.read_magic(stream)
            read_header = np.lib.format.read_array_header_1_0
            if version != (1, 0):
                read_header = np.lib.format.read_array_header_2_0
            shape, self._fortran, dtype = read_header(stream)
            self._data = stream.tell()
        self.info = FieldInfo(shape, dtype)
        self._streams: dict[int, IO[bytes]] = {}  # by column; all columns in one if C order

    def read(self, start: int, stop: int) -> Array:
        shape, dtype = self.info
        if not shape:
            return self._rows(0, 0, 1, 1)
        stop = min(stop, shape[0])
        width = int(np.prod(shape[1:], dtype=np.int64))
        if not self._fortran or len(shape) == 1:
            return self._rows(0, start, stop, width).reshape(stop - start, *shape[1:])
        # Column-major: every column is a run of its own, at its own place in the member.
        columns = [self._rows(column, start, stop, 1) for column in range(width)]
        block = np.stack(columns, 1) if columns else np.empty((stop - start, 0), dtype)
        return block.reshape(stop - start, *shape[:0:-1]).transpose(
            0, *range(len(shape) - 1, 0, -1)
        )

    def _rows(self, column: int, start: int, stop: int, width: int) -> Array:
        dtype = self.info.dtype
        row_bytes = width * dtype.itemsize
        rows = self.info.shape[0] if self.info.shape else 1
        stream = self._streams.get(column)
        if stream is None:
            stream = self._streams[column] = self._archive.open(self._entry)
        place = self._data + (column * rows + start) * row_bytes
        if stream.tell() != place:
            stream.seek(place)
        content = stream.read((stop - start) * row_bytes)
        if len(content) != (stop - start) * row_bytes:
            raise EOFError("it ends too early")
        array: np.ndarray[Any, Any] = np.frombuffer(content, dtype)
        return array
