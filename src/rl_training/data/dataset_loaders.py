"""From a kind and a path or id to a dataset; one table entry per kind."""

from __future__ import annotations

import stat
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_training.config import ConfigError, DatasetError, suggest
from rl_training.data.dataset_config import problems_with_keys
from rl_training.data.formats.hdf5 import open_hdf5
from rl_training.data.formats.npz import open_npz
from rl_training.data.formats.pt import open_pt
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.packing.cache import pack_on_disk
from rl_training.data.packing.pack import pack
from rl_training.data.packing.source import FieldSource

if TYPE_CHECKING:
    import gymnasium as gym

OpenFile = Callable[[Path], AbstractContextManager[FieldSource]]


def load_transition_dataset(
    kind: str,
    *,
    dataset_path: str | Path | None = None,
    dataset_id: str | None = None,
    download: bool = False,
    in_memory: bool = True,
    **options: Any,
) -> TransitionDataset:
    """Load a dataset of one of the kinds in `LOADERS`.

    Args:
        kind: builtin, random, npz, pt, minari or hdf5.
        dataset_path: The file, for npz, pt and hdf5.
        dataset_id: The name, for builtin and minari.
        download: Fetch a Minari dataset that is not on this machine.
        in_memory: False maps a packed copy from the cache directory instead of reading it.
        options: What a kind needs beyond that, as its loader says.
    """
    loader = LOADERS.get(kind)
    if loader is None:
        hint = suggest(kind, LOADERS) or f" (known: {', '.join(LOADERS)})"
        raise ConfigError(f"unknown dataset_kind {kind!r}{hint}")
    keys = {
        "dataset_path": dataset_path,
        "dataset_id": dataset_id,
        "dataset_download": download or None,
        "dataset_in_memory": in_memory and None,
        **options,
    }
    given = {key: value for key, value in keys.items() if value is not None}
    if problems := problems_with_keys(kind, given):
        raise ConfigError(problems)
    return loader(**given)


def _load_file(
    kind: str, open_file: OpenFile, *, dataset_path: str | Path, dataset_in_memory: bool = True
) -> TransitionDataset:
    path = require_file(Path(dataset_path).expanduser())
    if dataset_in_memory:
        with open_file(path) as source:
            return TransitionDataset.from_packed(pack(source))
    return TransitionDataset.from_packed(pack_on_disk(kind, [path], lambda: open_file(path)))


def _load_minari(
    *, dataset_id: str, dataset_download: bool = False, dataset_in_memory: bool = True
) -> TransitionDataset:
    from rl_training.data.formats.minari import find_minari, minari_files, open_minari

    dataset = find_minari(dataset_id, dataset_download)
    if dataset_in_memory:
        with open_minari(dataset) as source:
            return TransitionDataset.from_packed(pack(source))
    packed = pack_on_disk("minari", minari_files(dataset), lambda: open_minari(dataset))
    return TransitionDataset.from_packed(packed)


def _load_builtin(*, dataset_id: str) -> TransitionDataset:
    from rl_training.data.builtin.library import load_builtin

    return load_builtin(dataset_id)


def _load_random(
    *, env: gym.Env[Any, Any] | None = None, dataset_size: int = 10_000, dataset_seed: int = 0
) -> TransitionDataset:
    if env is None:
        raise ConfigError("dataset_kind 'random' needs env, an environment to act in")
    from rl_training.data.builtin.random_policy import collect_random

    return collect_random(env, dataset_size, dataset_seed)


LOADERS: dict[str, Callable[..., TransitionDataset]] = {
    "builtin": _load_builtin,
    "random": _load_random,
    "npz": partial(_load_file, "npz", open_npz),
    "pt": partial(_load_file, "pt", open_pt),
    "minari": _load_minari,
    "hdf5": partial(_load_file, "hdf5", open_hdf5),
}


def require_file(path: Path) -> Path:
    """The path of a readable, non-empty file, or an error that helps to find it."""
    try:
        mode = path.stat().st_mode
        # Opening a pipe waits for its writer, and a device may never end.
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise DatasetError(f"{path} is not a regular file; copy the data to one")
        with path.open("rb") as file:
            if not file.read(1):
                raise DatasetError(f"{path} is empty")
    except FileNotFoundError:
        raise DatasetError(f"there is no file {path}{_near_files(path)}") from None
    except IsADirectoryError:
        held = ", ".join(sorted(p.name for p in path.iterdir() if p.is_file())[:8]) or "no files"
        raise DatasetError(f"{path} is a directory; give a file in it (found: {held})") from None
    except PermissionError:
        raise DatasetError(f"{path} cannot be read: permission denied") from None
    except (OSError, ValueError) as error:
        if isinstance(error, DatasetError):
            raise
        raise DatasetError(f"{str(path)!r} cannot be read: {error}") from None
    return path


def _near_files(path: Path) -> str:
    directory = path.parent
    if not directory.is_dir():
        return f" (there is no directory {directory} either)"
    return suggest(path.name, [entry.name for entry in directory.iterdir()])
