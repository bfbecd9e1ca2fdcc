"""HDF5 files in D4RL's layout: one array per field at the top of the file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.config import DatasetError, MissingExtraError
from rl_training.data.formats import DatasetFormat, register_format
from rl_training.data.packing.source import Array, FieldInfo, FieldSource, pieces_of

D4RL_NAMES = {
    "obs": "observations", "next_obs": "next_observations",
    "terminations": "terminals", "truncations": "timeouts",
}  # fmt: skip


class Hdf5Source:
    """The arrays at the top of one open file; groups such as infos/ and metadata/ are left alone."""

    def __init__(self, file: Any, label: str) -> None:
        import h5py

        self.label = label
        self.remarks = _remarks(file.attrs)
        self._arrays = {
            name: item
            for name, item in file.items()
            if isinstance(item, h5py.Dataset) and name not in ("infos", "metadata")
        }
        # The shape of h5py.Empty is None: a type without rows.
        self.fields = {
            name: FieldInfo((0,) if a.shape is None else a.shape, a.dtype)
            for name, a in self._arrays.items()
        }
        if not self.fields:
            groups = ", ".join(sorted(file)) or "nothing"
            raise DatasetError(f"{label} holds no arrays at its top (found: {groups})")

    def read(self, field: str, start: int, stop: int) -> Array:
        array = self._arrays[field]
        if array.shape is None:
            return np.empty(0, array.dtype)
        try:
            return np.asarray(array[start:stop])
        except OSError as error:
            raise DatasetError(f"{self.label}: {field!r} is damaged: {error}") from None


def _remarks(attributes: Any) -> dict[str, str | int]:
    """Read `boundaries` and `num_actions`, which our own files carry as attributes."""
    remarks: dict[str, str | int] = {}
    for key in ("boundaries", "num_actions"):
        value = attributes.get(key)
        if isinstance(value, str):
            remarks[key] = value
        elif isinstance(value, (int, np.integer)):
            remarks[key] = int(value)
    return remarks


@contextmanager
def open_hdf5(dataset_path: Path) -> Iterator[Hdf5Source]:
    """Open an HDF5 file, or say what the file is instead."""
    try:
        import h5py
    except ImportError:
        raise MissingExtraError("dataset_kind 'hdf5'", "h5py", "hdf5") from None
    try:
        file = h5py.File(dataset_path, "r")
    except OSError:
        raise DatasetError(f"{dataset_path.name} is not an HDF5 file, or is cut off") from None
    with file:
        yield Hdf5Source(file, dataset_path.name)


def write_hdf5(source: FieldSource, path: Path) -> None:
    try:
        import h5py
    except ImportError:
        raise MissingExtraError("writing .hdf5", "h5py", "hdf5") from None
    with h5py.File(path, "w") as file:
        file.attrs.update(source.remarks)
        for name, (shape, dtype) in source.fields.items():
            array = file.create_dataset(D4RL_NAMES.get(name, name), shape, dtype)
            for start, piece in pieces_of(source, name):
                array[start : start + len(piece)] = piece


register_format(DatasetFormat("hdf5", open_hdf5, endings=(".hdf5", ".h5"), write=write_hdf5))
