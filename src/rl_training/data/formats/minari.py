"""Minari datasets, read episode by episode."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.config import DatasetError, MissingExtraError, first_line, suggest
from rl_training.data.formats import DatasetFormat, register_format
from rl_training.data.hdf5.minari_files import Hdf5Episode, check_metadata, episode_lengths
from rl_training.data.hdf5.reader import open_hdf5_reader
from rl_training.data.packing.source import Array, FieldInfo
from rl_training.spec import GOAL_KEYS

Episode = Mapping[str, Any] | Hdf5Episode  # arrays by field
# Minari joins an id to its directory; one from a file must not lead out of it
_ID = re.compile(r"[\w.-]+(/[\w.-]+)*")


def find_minari(dataset_id: str, download: bool) -> Any:
    """Find the local dataset of this id; download it first if asked."""
    try:
        import minari
    except ImportError:
        raise MissingExtraError("dataset_kind 'minari'", "Minari", "minari") from None
    if not _ID.fullmatch(dataset_id) or ".." in dataset_id.split("/"):
        raise DatasetError(
            f"{dataset_id!r}: a Minari id is a name such as D4RL/door/human-v2, not a path"
        )
    dataset = _open_local(minari, dataset_id)
    if dataset is None:
        if not download:
            hint = _hint(minari, dataset_id)
            raise DatasetError(
                f"Minari dataset {dataset_id!r} is not on this machine{hint}"
                f"{' ' if hint.endswith('?') else '. '}`minari download {dataset_id}` fetches it, and so does training with "
                "dataset_download=true."
            )
        try:
            minari.download_dataset(dataset_id)
        except Exception as error:  # whatever the hosting library of the day raises
            raise DatasetError(f"cannot download Minari dataset {dataset_id!r}: {error}") from error
        dataset = _open_local(minari, dataset_id)
    if dataset is None:
        raise DatasetError(f"Minari dataset {dataset_id!r} was downloaded, but cannot be found")
    return dataset


def _open_local(minari: Any, dataset_id: str) -> Any:
    """Open it by name, or return None: Minari's list fails if another dataset is badly named."""
    from minari.storage.datasets_root_dir import get_dataset_path

    label = f"cannot open Minari dataset {dataset_id!r}"
    directory = Path(get_dataset_path(dataset_id)) / "data"
    if not directory.is_dir():
        return None
    check_metadata(directory, label)
    try:
        return minari.load_dataset(dataset_id)
    except FileNotFoundError:
        return None
    except Exception as error:  # on metadata that is not its own, Minari fails in any way
        raise DatasetError(f"{label}: {first_line(error)}") from None


def _hint(minari: Any, dataset_id: str) -> str:
    try:
        local = sorted(minari.list_local_datasets())
    except (ValueError, OSError) as error:
        return f" (local datasets cannot be listed: {error})"
    listed = ", ".join(local) or "none"
    return suggest(dataset_id, local) or f" (local datasets: {listed})"


def minari_files(dataset_id: str, dataset_download: bool = False) -> list[Path]:
    """All files of the dataset."""
    dataset = find_minari(dataset_id, dataset_download)
    return sorted(path for path in Path(dataset.storage.data_path).rglob("*") if path.is_file())


def open_minari(
    dataset_id: str, dataset_download: bool = False
) -> AbstractContextManager[MinariSource]:
    return open_episodes(find_minari(dataset_id, dataset_download))


@contextmanager
def open_episodes(dataset: Any) -> Iterator[MinariSource]:
    """Open all episodes; HDF5 storage is read by us, without its infos."""
    label = f"Minari dataset {dataset.id!r}"
    observations = _observation_arrays(dataset.observation_space, label)
    _require_flat(dataset.action_space, "actions", label)
    numbers = [int(number) for number in dataset.episode_indices]
    main_file = Path(dataset.storage.data_path) / "main_data.hdf5"
    if main_file.exists():
        with open_hdf5_reader(main_file, label, depth=observations[0].count("/") + 1) as reader:
            lengths = episode_lengths(reader, numbers, observations)
            yield MinariSource(
                dataset, label, lengths, observations, lambda number: Hdf5Episode(reader, number)
            )
        return

    @lru_cache(maxsize=64)
    def episode(number: int) -> Episode:
        with _damage_named(label):
            stored: Mapping[str, Any] = next(iter(dataset.storage.get_episodes([number])))
            parts = stored["observations"]
            if not isinstance(parts, Mapping):
                return stored
            return {**stored, **{f"observations/{key}": part for key, part in parts.items()}}

    with _damage_named(label):
        metadata = dataset.storage.get_episode_metadata(numbers)
        lengths = [int(entry["total_steps"]) for entry in metadata]
    yield MinariSource(dataset, label, lengths, observations, episode)


@contextmanager
def _damage_named(label: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # Minari and pyarrow fail in any way on files that are not theirs
        reason = repr(error).splitlines()[0][:200]
        raise DatasetError(f"{label} is damaged: {reason}") from None


class MinariSource:
    """Episodes end to end; an episode of T steps has T + 1 observations.

    The arrays `observations` of an episode are laid side by side.
    """

    def __init__(
        self,
        dataset: Any,
        label: str,
        lengths: list[int],
        observations: tuple[str, ...],
        episode: Callable[[int], Episode],
    ) -> None:
        from gymnasium import spaces

        self.label = label
        self._episode, self._observations = episode, observations
        self._numbers = [int(number) for number in dataset.episode_indices]
        self._bounds = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        total = int(self._bounds[-1])
        if total == 0:
            raise DatasetError(f"{label} has no transitions")
        self.remarks: dict[str, str | int] = {}
        self._first_action = 0
        if isinstance(dataset.action_space, spaces.Discrete):
            self._first_action = int(dataset.action_space.start)
            self.remarks["num_actions"] = int(dataset.action_space.n)
            self.remarks["first_action"] = self._first_action
        first = episode(self._numbers[0])
        self.fields = {"episode_ids": FieldInfo((total,), np.dtype(np.int64))}
        for name in ("actions", "rewards", "terminations", "truncations"):
            array = first[name]
            self.fields[name] = FieldInfo((total, *array.shape[1:]), array.dtype)
        parts = [first[name] for name in observations]
        shape = parts[0].shape[1:]
        if len(parts) > 1:
            shape = (sum(part.shape[1] for part in parts),)
        info = FieldInfo((total, *shape), np.result_type(*(part.dtype for part in parts)))
        self.fields |= {"observations": info, "next_observations": info}

    def read(self, field: str, start: int, stop: int) -> Array:
        stop = min(stop, int(self._bounds[-1]))
        first = int(np.searchsorted(self._bounds, start, "right")) - 1
        last = int(np.searchsorted(self._bounds, stop, "left"))
        if field == "episode_ids":
            counts = np.diff(self._bounds[first : last + 1].clip(start, stop))
            return np.repeat(np.arange(first, last), counts)
        shift = int(field == "next_observations")
        names = self._observations if field.endswith("observations") else (field,)
        pieces = []
        for episode in range(first, last):
            begin = int(self._bounds[episode])
            inside = slice(max(start - begin, 0) + shift,
                           min(stop, int(self._bounds[episode + 1])) - begin + shift)  # fmt: skip
            arrays = self._episode(self._numbers[episode])
            parts = [np.asarray(arrays[name][inside]) for name in names]
            pieces.append(parts[0] if len(parts) == 1 else np.concatenate(parts, 1))
        values = np.concatenate(pieces)
        return values - self._first_action if field == "actions" and self._first_action else values


def _observation_arrays(space: Any, label: str) -> tuple[str, ...]:
    """Names of the arrays of an observation: one, or the parts of a goal observation in their order."""
    from gymnasium import spaces

    if not isinstance(space, spaces.Dict) or set(space.spaces) != set(GOAL_KEYS):
        _require_flat(space, "observations", label)
        return ("observations",)
    for key in GOAL_KEYS:
        part = space[key]
        if not isinstance(part, spaces.Box) or len(part.shape) != 1:
            raise DatasetError(f"{label}: {key} of the observations is {part}, not a vector")
    return tuple(f"observations/{key}" for key in GOAL_KEYS)


def _require_flat(space: Any, what: str, label: str) -> None:
    from gymnasium import spaces

    flat = isinstance(space, spaces.Box) and len(space.shape) <= 1
    if not flat and not isinstance(space, spaces.Discrete):
        images = isinstance(space, spaces.Box) and what == "observations"
        why = "image observations are not supported" if images else "only flat spaces are supported"
        raise DatasetError(f"{label}: {what} are {space}; {why}")


register_format(
    DatasetFormat(
        "minari",
        open_minari,
        keys=("dataset_id", "dataset_download", "dataset_in_memory"),
        files=minari_files,
    )
)
