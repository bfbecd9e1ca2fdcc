"""Datasets as people write them on a command line: `logs.npz`, `builtin:NAME`, `minari:NAME`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rl_training.config import DatasetError
from rl_training.data.action_rules import Bound
from rl_training.data.checks import Finding, check_dataset, check_fields
from rl_training.data.dataset_loaders import load_transition_dataset, require_file
from rl_training.data.field_names import match_field_names, missing_field
from rl_training.data.field_source import FieldSource
from rl_training.data.hdf5_source import open_hdf5
from rl_training.data.npz_source import open_npz
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.pt_source import open_pt

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


def read_raw_fields(path: str | Path) -> dict[str, npt.NDArray[Any]]:
    """Every field of a file as it is, before any check, under its own name."""
    kind, _ = parse_location(str(path))
    with _OPEN[kind](require_file(Path(path))) as source:
        return {name: source.read(name, 0, info.shape[0]) for name, info in source.fields.items()}


def check_location(
    location: str, *, action_low: Bound | None = None, action_high: Bound | None = None
) -> list[Finding]:
    """Everything suspicious about a dataset, also about files that cannot be loaded for it."""
    kind, _ = parse_location(location)
    if kind in _OPEN:
        fields = read_raw_fields(location)
        return check_fields(fields, location, action_low=action_low, action_high=action_high)
    return check_dataset(load_location(location), action_low=action_low, action_high=action_high)


def read_observations(path: str | Path) -> npt.NDArray[np.float32]:
    """Only the observations of a log; it need not hold anything else."""
    kind, _ = parse_location(str(path))
    with _OPEN[kind](require_file(Path(path))) as source:
        names = match_field_names(source.fields, source.label)
        if "obs" not in names.known:
            raise missing_field("obs", names, source.label)
        field = names.known["obs"]
        values = source.read(field, 0, source.fields[field].shape[0])
    return np.asarray(values, dtype=np.float32)
