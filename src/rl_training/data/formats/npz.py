"""NumPy archives, read as streams: members are unpacked piece by piece, pickles never."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from rl_training.config import DatasetError, first_line
from rl_training.data.formats import DatasetFormat, register_format
from rl_training.data.packing.archives import DAMAGE, open_archive
from rl_training.data.packing.source import Array, FieldInfo, FieldSource, is_remark, pieces_of

_MAX_HEADER = 12_000  # bytes; NumPy itself takes 10,000
_MAX_COLUMNS = 256  # that are read as a stream each


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
                archive.open(
                    entry
                ).close()  # fails if only the directory calls it so: a damaged name
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
        except DAMAGE as error:
            raise DatasetError(f"{self.label}: {field!r} is damaged: {error}") from None


@contextmanager
def open_npz(dataset_path: Path) -> Iterator[NpzSource]:
    """Open a .npz file, or say what the file is instead."""
    label = dataset_path.name
    with open_archive(dataset_path, ".npz") as archive:
        try:
            source = NpzSource(archive, label)
        except DAMAGE as error:
            if isinstance(error, DatasetError):
                raise
            raise DatasetError(f"{label} is damaged: {error}") from None
        yield source


class _Member:
    """One array of the archive; reading rows in rising order needs one pass over it."""

    def __init__(self, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> None:
        self._archive = archive
        self._entry = entry
        with archive.open(entry) as stream:
            shape, self._fortran, dtype, self._data = _read_header(stream, entry.filename)
        size = self._data + math.prod(shape) * dtype.itemsize
        if min(shape, default=0) < 0 or (size != entry.file_size and not dtype.hasobject):
            raise ValueError(f"{entry.filename!r} is not as long as its shape says")
        self.info = FieldInfo(shape, dtype)
        self._streams: dict[int, IO[bytes]] = {}  # by column; all columns in one if C order
        self._columns: Array | None = None  # of a wide array in Fortran order, held as a whole

    def read(self, start: int, stop: int) -> Array:
        shape, dtype = self.info
        if not shape:
            return self._rows(0, 0, 1, 1)
        stop = min(stop, shape[0])
        width = int(np.prod(shape[1:], dtype=np.int64))
        if not self._fortran or len(shape) == 1:
            return self._rows(0, start, stop, width).reshape(stop - start, *shape[1:])
        # Column-major: every column is a run of its own, at its own offset in the member.
        if width > _MAX_COLUMNS:  # as many streams would unpack the member as many times
            if self._columns is None:
                self._columns = self._rows(0, 0, width, shape[0]).reshape(width, shape[0])
            columns = list(self._columns[:, start:stop])
        else:
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
        offset = self._data + (column * rows + start) * row_bytes
        if stream.tell() != offset:
            stream.seek(offset)
        content = stream.read((stop - start) * row_bytes)
        if len(content) != (stop - start) * row_bytes:
            raise EOFError("it ends too early")
        array: np.ndarray[Any, Any] = np.frombuffer(content, dtype)
        return array


def _read_header(stream: IO[bytes], name: str) -> tuple[tuple[int, ...], bool, Any, int]:
    """Shape, Fortran order, type and length of the header of a `.npy` file."""
    start = io.BytesIO(stream.read(_MAX_HEADER))  # whatever length the header claims
    try:
        version = np.lib.format.read_magic(start)
        read_header = np.lib.format.read_array_header_1_0
        if version != (1, 0):
            read_header = np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read_header(start)
    except Exception as error:  # it is parsed as Python text, which fails in any way
        reason = first_line(error, limit=100)
        raise ValueError(f"the header of {name[:80]!r}: {reason}") from None
    return shape, fortran, dtype, start.tell()


def write_npz(source: FieldSource, path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, (shape, dtype) in source.fields.items():
            header = {"descr": dtype.str, "fortran_order": False, "shape": shape}
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array_header_1_0(member, header)
                for _, piece in pieces_of(source, name):
                    member.write(piece.data)
        for name, value in source.remarks.items():
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, np.asarray(value), allow_pickle=False)


register_format(DatasetFormat("npz", open_npz, endings=(".npz",), write=write_npz))
