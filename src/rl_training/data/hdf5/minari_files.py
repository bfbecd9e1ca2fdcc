"""Files of a Minari dataset from a stranger: metadata checked before Minari sees it, episodes in HDF5.

Minari makes the environment of a dataset without spaces, which runs code that the metadata name. It also
builds spaces of any size. So the metadata must hold both spaces, and sensible ones.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.config import DatasetError
from rl_training.data.hdf5.reader import Hdf5Reader
from rl_training.data.packing.source import Array, FieldInfo
from rl_training.files import parse_json, read_json

_MAX_NUMBERS = 10**7  # in one observation or action
_MAX_EPISODES = 10**7
_MAX_METADATA = 16 << 20  # bytes


def check_metadata(directory: Path, label: str) -> None:
    """Refuse metadata that would make Minari run code, fill the memory or read other files."""
    try:
        metadata = read_json(directory / "metadata.json", limit=_MAX_METADATA)
    except OSError as error:
        raise DatasetError(f"{label}: its metadata.json cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise DatasetError(f"{label}: its metadata.json is damaged: {error}") from None
    if not isinstance(metadata, dict):
        raise DatasetError(f"{label}: its metadata.json is not a mapping")
    for key in ("observation_space", "action_space"):
        _check_space(metadata.get(key), f"{label}: {key} in its metadata.json")
    for key, largest in (("total_episodes", _MAX_EPISODES), ("total_steps", 2**62)):
        value = metadata.get(key)
        if type(value) is not int or not 0 <= value <= largest:
            raise DatasetError(f"{label}: {key} in its metadata.json is damaged")
    for path in directory.rglob("*"):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise DatasetError(f"{label}: {path.name!r} is a link or not a regular file")


def _check_space(text: Any, label: str) -> None:
    if not isinstance(text, str):
        raise DatasetError(
            f"{label} is missing; making the environment to find out would run code that the "
            "dataset names"
        )
    try:
        numbers = _numbers_in(parse_json(text))
    except (ValueError, TypeError, KeyError):
        raise DatasetError(f"{label} is damaged") from None
    if numbers > _MAX_NUMBERS:
        raise DatasetError(f"{label} is too large")


def _numbers_in(space: Any, depth: int = 0) -> int:
    """Count the numbers of one element of a space as Minari stores it."""
    if not isinstance(space, dict) or depth > 20:
        raise TypeError
    if space["type"] in ("Dict", "Tuple"):
        parts = space["subspaces"]
        values = parts.values() if isinstance(parts, dict) else parts
        return sum(_numbers_in(part, depth + 1) for part in values)
    sizes = space.get("shape") if space["type"] == "Box" else space.get("n", [])
    if space["type"] == "Discrete":
        sizes = []
    sizes = sizes if isinstance(sizes, list) else [sizes]
    if not all(type(size) is int and size >= 0 for size in sizes):
        raise TypeError
    return math.prod(sizes)


def episode_lengths(
    reader: Hdf5Reader, numbers: list[int], observations: tuple[str, ...]
) -> list[int]:
    """Count the steps of every episode; fields that do not fit each other are an error.

    `observations` are the names of their arrays, which have one row more than the others.
    """
    lengths = []
    for number in numbers:
        infos = {}
        for name in (*observations, "actions", "rewards", "terminations", "truncations"):
            info = reader.arrays.get(f"episode_{number}/{name}")
            if info is None or not info.shape:
                raise DatasetError(f"{reader.label}: episode {number} has no array {name!r}")
            infos[name] = info
        steps = infos["rewards"].shape[0]
        for name, info in infos.items():
            expected = steps + (name in observations)
            first = reader.arrays[f"episode_{numbers[0]}/{name}"]
            if info.shape[0] != expected or (info.shape[1:], info.dtype) != (
                first.shape[1:],
                first.dtype,
            ):
                raise DatasetError(
                    f"{reader.label}: {name!r} of episode {number} does not fit the others"
                )
        lengths.append(steps)
    return lengths


class Hdf5Episode:
    """The arrays of one episode by name."""

    def __init__(self, reader: Hdf5Reader, number: int) -> None:
        self._reader = reader
        self._prefix = f"episode_{number}/"

    def __getitem__(self, name: str) -> EpisodeArray:
        return EpisodeArray(self._reader, self._prefix + name)


class EpisodeArray:
    """One array of an episode; slices are read from the file."""

    def __init__(self, reader: Hdf5Reader, name: str) -> None:
        self._reader = reader
        self._name = name

    @property
    def info(self) -> FieldInfo:
        return self._reader.arrays[self._name]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.info.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.info.dtype

    def __getitem__(self, rows: slice) -> Array:
        return self._reader.read(self._name, rows.start, rows.stop)
