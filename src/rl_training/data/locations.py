"""Datasets as the command line names them: `log.npz`, `builtin:NAME`, `minari:NAME`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rl_training.config import DatasetError
from rl_training.data.checks.dataset_checks import Finding, check_dataset, check_source
from rl_training.data.dataset_loaders import load_transition_dataset, open_source
from rl_training.data.formats import parse_location
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.packing.names import match_field_names, missing_field
from rl_training.data.packing.plan import check_field
from rl_training.spec import ProblemSpec


def load_location(location: str) -> TransitionDataset:
    dataset_format, options = parse_location(location)
    return load_transition_dataset(dataset_format.name, **options)


def check_location(location: str, *, spec: ProblemSpec | None = None) -> list[Finding]:
    """Check a dataset, also one in a file that is too broken to load.

    Args:
        location: A file, or `kind:NAME`.
        spec: The environment to compare the data with.
    """
    dataset_format, options = parse_location(location)
    if "dataset_path" not in options:
        return check_dataset(load_location(location), spec=spec)
    with open_source(dataset_format.name, options) as source:
        return check_source(source, spec=spec)


def read_observations(location: str) -> npt.NDArray[np.float32]:
    """Read only the observations, (rows, width); the log need not hold anything else."""
    dataset_format, options = parse_location(location)
    with open_source(dataset_format.name, options) as source:
        names = match_field_names(source.fields, source.label)
        if "obs" not in names.matched:
            raise missing_field("obs", names, source.label)
        field = names.matched["obs"]
        info, label = source.fields[field], f"{source.label}: {field!r}"
        check_field("obs", info, label)
        if info.shape[0] == 0:
            raise DatasetError(f"{label} has no rows")
        values = source.read(field, 0, info.shape[0])
    with np.errstate(over="ignore"):  # numbers that overflow are reported with their row
        table = values.reshape(len(values), -1).astype(np.float32)
    bad = np.argwhere(~np.isfinite(table))
    if len(bad):
        row, column = bad[0]
        raise DatasetError(f"{label} has {table[row, column]} at row {row}")
    return table
