"""Dataset formats: one file each, and the registry that every other module asks.

A format is a `DatasetFormat`: its name (`dataset_kind`), the options it uses, the file endings it
claims, how to open it as a source of arrays and how to write one. A new format is one file: a module
in this folder, or a plugin (`--plugin FILE`, or an entry point of the group `rl_training.formats`)
that calls `register_format`. Importing this registry imports neither torch nor h5py nor minari.

- `npz`      NumPy archives, read as streams
- `pt`       dicts of tensors, mapped from the file
- `hdf5`     HDF5 files in D4RL's layout
- `minari`   Minari datasets on this machine, or downloaded
- `builtin`  datasets that the package builds itself
- `random`   rows of a uniformly random policy in the configured environment
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from rl_training.config import ConfigError, DatasetError, Problem, suggest
from rl_training.data.packing.source import ArraySource, FieldInfo, FieldSource

__all__ = [
    "ArraySource",
    "DatasetFormat",
    "FieldInfo",
    "FieldSource",
    "file_endings",
    "format_of_file",
    "get_format",
    "list_formats",
    "parse_location",
    "problems_with_options",
    "register_format",
]

ENTRY_POINT_GROUP = "rl_training.formats"
_REQUIRED = {  # by every format that uses them, and how to give them
    "dataset_path": "the file to read, such as dataset_path=LOG.npz",
    "dataset_id": "the dataset's name, such as dataset_id=NAME",
}

OpenSource = Callable[..., AbstractContextManager[FieldSource]]


@dataclass(frozen=True)
class DatasetFormat:
    """One kind of dataset.

    Attributes:
        name: The value of `dataset_kind`.
        open: Opens the data for reading. It gets the options of `keys` that are set, by name and
            without `dataset_in_memory`; `dataset_path` is the path of a file that exists.
        keys: The `dataset_*` options that it uses. `dataset_path` and `dataset_id` are then required.
            A format with `dataset_id` is written `name:ID` on the command line.
        endings: File endings that stand for this format on the command line and in `save`.
        write: Writes all fields and remarks of a source to a new file; None if it cannot.
        files: The files that a packed copy in the cache depends on, from the same options as `open`;
            None stands for `dataset_path` alone.
        needs_env: `open` also gets `env`, an environment to act in.
        derives_next_actions: The loaded dataset carries the action of each following row.
    """

    name: str
    open: OpenSource
    keys: tuple[str, ...] = ("dataset_path", "dataset_in_memory")
    endings: tuple[str, ...] = ()
    write: Callable[[FieldSource, Path], None] | None = None
    files: Callable[..., Sequence[Path]] | None = None
    needs_env: bool = False
    derives_next_actions: bool = False


_FORMATS: dict[str, DatasetFormat] = {}
_discovered = False


def register_format(dataset_format: DatasetFormat) -> DatasetFormat:
    """Add a format; a name or a file ending that another module has taken is an error."""
    module = dataset_format.open.__module__
    for other in _FORMATS.values():
        if other.open.__module__ == module:
            continue  # the same file, loaded again
        if other.name == dataset_format.name:
            raise ConfigError(
                f"dataset format {other.name!r} is registered twice: in {other.open.__module__} "
                f"and in {module}"
            )
        for ending in set(other.endings) & set(dataset_format.endings):
            raise ConfigError(
                f"files that end in {ending} belong to dataset format {other.name!r}; "
                f"{dataset_format.name!r} cannot claim them, too"
            )
    _FORMATS[dataset_format.name] = dataset_format
    return dataset_format


def _discover() -> None:
    """Import every module of this folder and every installed plugin, once."""
    global _discovered
    if _discovered:
        return
    _discovered = True
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        entry.load()


def list_formats() -> list[DatasetFormat]:
    _discover()
    return [_FORMATS[name] for name in sorted(_FORMATS)]


def get_format(name: str) -> DatasetFormat:
    """The format of a `dataset_kind`, or an error with the nearest name and all of them."""
    _discover()
    if name not in _FORMATS:
        listed = ", ".join(sorted(_FORMATS))
        raise ConfigError(
            f"unknown dataset_kind {name!r}{suggest(name, _FORMATS)} "
            f"(known: {listed}; --plugin FILE adds your own)"
        )
    return _FORMATS[name]


def problems_with_options(name: str, options: Mapping[str, Any]) -> list[Problem]:
    """Options that a format needs and lacks, and `dataset_*` options that it does not use."""
    keys = get_format(name).keys
    lacking = [key for key in keys if key in _REQUIRED and key not in options]
    unused = [key for key in options if key.startswith("dataset_") and key not in keys]
    return [
        *(
            Problem((key,), f"dataset_kind {name!r} needs {key}: {_REQUIRED[key]}")
            for key in lacking
        ),
        *(
            Problem(
                (key,),
                f"{key} is not used by dataset_kind {name!r}{kind_advice(key, options[key])}",
            )
            for key in unused
        ),
    ]


def kind_advice(key: str, value: Any) -> str:
    """Say which `dataset_kind` goes with an option, and with the file that it names."""
    dataset_format = format_of_file(Path(value)) if isinstance(value, str) else None
    if key == "dataset_path" and dataset_format is not None:
        return f"; for this file write dataset_kind={dataset_format.name}, too"
    kinds = [entry.name for entry in list_formats() if key in entry.keys]
    return f"; it goes with dataset_kind {' or '.join(kinds)}" if kinds else ""


def file_endings(*, writable: bool = False) -> list[str]:
    """File endings of all formats, or of those that can be written."""
    return [
        ending
        for dataset_format in list_formats()
        if dataset_format.write is not None or not writable
        for ending in dataset_format.endings
    ]


def format_of_file(path: Path) -> DatasetFormat | None:
    """The format that claims this file's ending."""
    ending = path.suffix.lower()
    return next((entry for entry in list_formats() if ending in entry.endings), None)


def parse_location(location: str) -> tuple[DatasetFormat, dict[str, Any]]:
    """Format and options of a dataset as the command line names it: `log.npz`, `minari:NAME`."""
    name, colon, dataset_id = location.partition(":")
    named = [entry.name for entry in list_formats() if "dataset_id" in entry.keys]
    if colon and name in named:
        return get_format(name), {"dataset_id": dataset_id}
    dataset_format = format_of_file(Path(location))
    if dataset_format is None:
        forms = [f"a file ({', '.join(file_endings())})", *(f"{name}:NAME" for name in named)]
        listed = f"{', '.join(forms[:-1])} or {forms[-1]}"
        raise DatasetError(f"{location}: not a dataset; write {listed}")
    return dataset_format, {"dataset_path": location}
