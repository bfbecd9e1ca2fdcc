"""Reads HDF5 files in D4RL's layout: one array per field at the top of the file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.config import DatasetError, MissingExtraError
from rl_training.data.field_source import Array, FieldInfo


class Hdf5Source:
    """The arrays at the top of one open file; groups such as infos/ and metadata/ are left alone."""

    def __init__(self, file: Any, label: str) -> None:
        import h5py

        self.label = label
        self.remarks = {key: _plain(file.attrs[key]) for key in ("boundaries", "num_actions")
                        if key in file.attrs}  # fmt: skip
        self._arrays = {
            name: item
            for name, item in file.items()
            if isinstance(item, h5py.Dataset) and name not in ("infos", "metadata")
        }
        self.fields = {name: FieldInfo(a.shape, a.dtype) for name, a in self._arrays.items()}
        if not self.fields:
            groups = ", ".join(sorted(file)) or "nothing"
            raise DatasetError(f"{label} holds no arrays at its top (found: {groups})")

    def read(self, field: str, start: int, stop: int) -> Array:
        try:
            return np.asarray(self._arrays[field][start:stop])
        except OSError as error:
            raise DatasetError(f"{self.label}: {field!r} is damaged: {error}") from None


def _plain(value: Any) -> str | int:
    return value if isinstance(value, str) else int(value)


@contextmanager
def open_hdf5(path: Path) -> Iterator[Hdf5Source]:
    """A readable HDF5 file, or an error that says what the file is instead."""
    try:
        import h5py
    except ImportError:
        raise MissingExtraError("dataset_kind 'hdf5'", "h5py", "hdf5") from None
    try:
        file = h5py.File(path, "r")
    except OSError:
        raise DatasetError(f"{path.name} is not an HDF5 file, or is cut off") from None
    with file:
        yield Hdf5Source(file, path.name)
