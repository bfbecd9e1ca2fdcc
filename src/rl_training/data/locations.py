"""Datasets as people write them on a command line: `logs.npz`, `builtin:NAME`, `minari:NAME`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rl_training.config import DatasetError
from rl_training.data.checks.dataset_checks import Finding, check_dataset, check_source
from rl_training.data.dataset_loaders import load_transition_dataset, require_file
from rl_training.data.formats.hdf5 import open_hdf5
from rl_training.data.formats.npz import open_npz
from rl_training.data.formats.pt import open_pt
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.packing.names import match_field_names, missing_field
from rl_training.data.packing.plan import check_field
from rl_training.data.packing.source import FieldSource
from rl_training.spec import ProblemSpec

FILE_KINDS = {".npz": "npz", ".pt": "pt", ".pth": "pt", ".hdf5": "hdf5", ".h5": "hdf5"}
_OPEN: dict[str, Callable[[Path], AbstractContextManager[FieldSource]]] = {
    "npz": open_npz,
    "pt": open_pt,
    "hdf5": open_hdf5,
}


def parse_location(location: str) -> tuple[str, dict[str, Any]]:
    """Kind and keys for `load_transition_dataset`."""
    scheme, separator, name = location.partition(":")
    if separator and scheme in ("builtin", "minari"):
        return scheme, {"dataset_id": name}
    kind = FILE_KINDS.get(Path(location).suffix.lower())
    if kind is None:
        known = ", ".join(FILE_KINDS)
        raise DatasetError(
            f"{location}: not a dataset; write a file ({known}), builtin:NAME or minari:NAME"
        )
    return kind, {"dataset_path": location}


def load_location(location: str) -> TransitionDataset:
    kind, keys = parse_location(location)
    return load_transition_dataset(kind, **keys)


@contextmanager
def _open_file(location: str, kind: str) -> Iterator[FieldSource]:
    with _OPEN[kind](require_file(Path(location).expanduser())) as source:
        yield source


def check_location(location: str, *, spec: ProblemSpec | None = None) -> list[Finding]:
    """Everything suspicious about a dataset, also about files that cannot be loaded for it.

    Args:
        location: As for `load_location`.
        spec: The environment to compare the data with.
    """
    kind, _ = parse_location(location)
    if kind not in _OPEN:
        return check_dataset(load_location(location), spec=spec)
    with _open_file(location, kind) as source:
        return check_source(source, spec=spec)


def read_observations(location: str) -> npt.NDArray[np.float32]:
    """Only the observations of a log, (rows, width); it need not hold anything else."""
    kind, _ = parse_location(location)
    if kind not in _OPEN:
        return load_location(location).obs.numpy()
    with _open_file(location, kind) as source:
        names = match_field_names(source.fields, source.label)
        if "obs" not in names.known:
            raise missing_field("obs", names, source.label)
        field = names.known["obs"]
        info, place = source.fields[field], f"{source.label}: {field!r}"
        check_field("obs", info, place)
        if info.shape[0] == 0:
            raise DatasetError(f"{place} has no rows")
        values = source.read(field, 0, info.shape[0])
    with np.errstate(over="ignore"):  # what overflows is reported with its row
        table = values.reshape(len(values), -1).astype(np.float32)
    bad = np.argwhere(~np.isfinite(table))
    if len(bad):
        row, column = bad[0]
        raise DatasetError(f"{place} has {table[row, column]} at row {row}")
    return table
