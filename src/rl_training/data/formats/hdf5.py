"""HDF5 files in D4RL's layout: one array per field at the top of the file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from rl_training.config import DatasetError, MissingExtraError
from rl_training.data.formats import DatasetFormat, register_format
from rl_training.data.hdf5.reader import Hdf5Reader, open_hdf5_reader
from rl_training.data.packing.source import FieldSource, pieces_of

D4RL_NAMES = {
    "obs": "observations", "next_obs": "next_observations",
    "terminations": "terminals", "truncations": "timeouts",
}  # fmt: skip


class Hdf5Source:
    """The arrays at the top of one open file; groups such as infos/ and metadata/ are left alone."""

    def __init__(self, reader: Hdf5Reader) -> None:
        self.label = reader.label
        self.remarks = reader.remarks
        self.fields = reader.arrays
        self.read = reader.read
        if not self.fields:
            groups = ", ".join(sorted(reader.others)) or "nothing"
            raise DatasetError(f"{self.label} holds no arrays at its top (found: {groups})")


@contextmanager
def open_hdf5(dataset_path: Path) -> Iterator[Hdf5Source]:
    """Open an HDF5 file, or say what the file is instead."""
    if find_spec("h5py") is None:
        raise MissingExtraError("dataset_kind 'hdf5'", "h5py", "hdf5")
    with open_hdf5_reader(dataset_path, dataset_path.name) as reader:
        yield Hdf5Source(reader)


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
