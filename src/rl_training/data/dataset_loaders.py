"""Loading a dataset: from a kind and its options to a `TransitionDataset`."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from rl_training.config import ConfigError, DatasetError, suggest
from rl_training.data.formats import FieldSource, get_format, problems_with_options
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.packing.cache import pack_on_disk
from rl_training.data.packing.pack import pack

_sharing: ContextVar[bool] = ContextVar("sharing", default=False)


@contextmanager
def sharing_memory() -> Iterator[None]:
    """Context in which data that other processes may load, too, is mapped, so that its memory is there once."""
    token = _sharing.set(True)
    try:
        yield
    finally:
        _sharing.reset(token)


def shares_memory() -> bool:
    return _sharing.get()


def load_transition_dataset(
    kind: str,
    dataset_path: str | Path | None = None,
    *,
    dataset_id: str | None = None,
    download: bool = False,
    in_memory: bool = True,
    **options: Any,
) -> TransitionDataset:
    """Load a dataset of any registered format.

    Args:
        kind: builtin, random, npz, pt, minari, hdf5, or the name of a plugin's format.
        dataset_path: File to read, for formats of files.
        dataset_id: Name of the dataset, for builtin and minari.
        download: Fetch a Minari dataset that is not on this machine.
        in_memory: False maps a packed copy from the cache directory instead of reading it.
        options: Further `dataset_*` options of the format; `env`, where it needs an environment.
    """
    every = {
        "dataset_path": dataset_path,
        "dataset_id": dataset_id,
        "dataset_download": download or None,
        "dataset_in_memory": in_memory and None,
        **options,
    }
    options = {key: value for key, value in every.items() if value is not None}
    dataset_format = get_format(kind)
    if problems := problems_with_options(kind, options):
        raise ConfigError(problems)
    if dataset_format.needs_env and "env" not in options:
        raise ConfigError(f"dataset_kind {kind!r} needs env, an environment to act in")
    if options.pop("dataset_in_memory", True):
        with open_source(kind, options) as source:
            packed = pack(source)
    else:
        files = dataset_format.files or _only_file
        packed = pack_on_disk(kind, files(**options), lambda: open_source(kind, options))
    dataset = TransitionDataset.from_packed(packed)
    return dataset.with_next_actions() if dataset_format.derives_next_actions else dataset


@contextmanager
def open_source(kind: str, options: dict[str, Any]) -> Iterator[FieldSource]:
    """Open the arrays of a dataset, before they are packed."""
    if "dataset_path" in options:
        options = {**options, "dataset_path": require_file(options["dataset_path"])}
    with get_format(kind).open(**options) as source:
        try:
            yield source
        except MemoryError:
            raise DatasetError(
                f"{source.label} does not fit into the memory; set dataset_in_memory: false"
            ) from None


def _only_file(dataset_path: str | Path, **_: Any) -> list[Path]:
    return [require_file(dataset_path)]


def require_file(name: str | Path) -> Path:
    """Expand `~` and make sure of a readable, non-empty file, or raise an error that helps to find it."""
    path = Path(name).expanduser()
    try:
        mode = path.stat().st_mode
        # Opening a pipe waits for its writer, and a device may never end.
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise DatasetError(f"{path} is not a regular file; copy the data to one")
        with path.open("rb") as file:
            if not file.read(1):
                raise DatasetError(f"{path} is empty")
    except FileNotFoundError:
        raise DatasetError(f"there is no file {path}{_similar_names(path)}") from None
    except IsADirectoryError:
        inside = ", ".join(sorted(p.name for p in path.iterdir() if p.is_file())[:8]) or "no files"
        raise DatasetError(f"{path} is a directory; give a file in it (found: {inside})") from None
    except PermissionError:
        raise DatasetError(f"{path} cannot be read: permission denied") from None
    except (OSError, ValueError) as error:
        if isinstance(error, DatasetError):
            raise
        raise DatasetError(f"{str(path)!r} cannot be read: {error}") from None
    return path


def _similar_names(path: Path) -> str:
    directory = path.parent
    if not directory.is_dir():
        return f" (there is no directory {directory} either)"
    return suggest(path.name, [entry.name for entry in directory.iterdir()])
