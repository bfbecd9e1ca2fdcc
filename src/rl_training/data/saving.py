"""Writes a dataset to .npz, .pt or .hdf5, aside first, so that a file is whole or not there."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from rl_training.config import DatasetError, MissingExtraError, OutputError
from rl_training.data.packing.source import Array

if TYPE_CHECKING:
    from rl_training.data.transitions.fields import DatasetFields

D4RL_NAMES = {
    "obs": "observations", "next_obs": "next_observations",
    "terminations": "terminals", "truncations": "timeouts",
}  # fmt: skip


def save_fields(dataset: DatasetFields, path: Path) -> None:
    """Choose the format by suffix, write beside the target, then rename."""
    write = _WRITERS.get(path.suffix.lower())
    if write is None:
        raise DatasetError(f"{path.name}: unknown suffix; use one of {', '.join(_WRITERS)}")
    with written_aside(path) as aside:
        try:
            write(dataset, aside)
        except _NotFiniteError as problem:
            raise DatasetError(f"cannot write {path}: {problem}") from None


@contextmanager
def written_aside(path: Path) -> Iterator[Path]:
    """A name beside `path` to write to; takes its place when all went well."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield aside
        aside.replace(path)
    except (OSError, RuntimeError) as error:  # torch reports a full disk as the latter
        reason = getattr(error, "strerror", None) or error
        raise OutputError(f"cannot write {path}: {reason}") from None
    finally:
        # A read-only place refuses this too, and the reason is the better error.
        with suppress(OSError):
            aside.unlink(missing_ok=True)


class _Field(NamedTuple):
    """Where a field lies in a row, and what it is in a file."""

    columns: int | slice
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


def _fields(dataset: DatasetFields) -> dict[str, _Field]:
    """By our names."""
    layout, count = dataset.layout, (len(dataset),)
    number, flag = np.dtype(np.float32), np.dtype(np.bool_)
    action = np.dtype(np.int64) if layout.discrete else number
    action_shape = count if layout.discrete else (*count, layout.action_width)
    fields = {
        "obs": _Field(layout.obs, number, (*count, layout.obs_dim)),
        "actions": _Field(layout.actions, action, action_shape),
        "rewards": _Field(layout.reward, number, count),
        "next_obs": _Field(layout.next_obs, number, (*count, layout.obs_dim)),
        "terminations": _Field(layout.termination, flag, count),
        "truncations": _Field(layout.truncation, flag, count),
    }
    if layout.has_next_actions:
        fields["next_actions"] = _Field(layout.next_actions, action, action_shape)
        fields["next_action_valid"] = _Field(layout.next_action_valid, flag, count)
    return fields


def _remarks(dataset: DatasetFields) -> dict[str, str | int]:
    """What cannot be seen from the arrays alone."""
    choices = {} if dataset.num_actions is None else {"num_actions": dataset.num_actions}
    return {"boundaries": dataset.boundaries, **choices}


class _NotFiniteError(Exception):
    """A transform took values out of float32: no loader would read the file."""


def _pieces(dataset: DatasetFields, name: str, field: _Field) -> Iterator[Array]:
    start = 0
    for values in dataset.column_pieces(field.columns):
        if not bool(values.isfinite().all()):
            place = tuple(values.isfinite().logical_not().nonzero()[0].tolist())
            raise _NotFiniteError(
                f"{name!r} would have {values[place]:g} at row {start + place[0]}; "
                "scale or shift by smaller numbers"
            )
        piece = np.ascontiguousarray(values.numpy(), dtype=field.dtype)
        start += len(piece)
        yield piece.reshape(len(piece), *field.shape[1:])


def _write_npz(dataset: DatasetFields, path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, field in _fields(dataset).items():
            header = {"descr": field.dtype.str, "fortran_order": False, "shape": field.shape}
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array_header_1_0(member, header)
                for piece in _pieces(dataset, name, field):
                    member.write(piece.data)
        for name, value in _remarks(dataset).items():
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, np.asarray(value), allow_pickle=False)


def _write_pt(dataset: DatasetFields, path: Path) -> None:
    values: dict[str, Any] = dict(_remarks(dataset))
    for name, field in _fields(dataset).items():
        array = np.empty(field.shape, field.dtype)
        values[name] = torch.from_numpy(_fill(array, dataset, name, field))
    torch.save(values, path)


def _write_hdf5(dataset: DatasetFields, path: Path) -> None:
    try:
        import h5py
    except ImportError:
        raise MissingExtraError("writing .hdf5", "h5py", "hdf5") from None
    with h5py.File(path, "w") as file:
        file.attrs.update(_remarks(dataset))
        for name, field in _fields(dataset).items():
            array = file.create_dataset(D4RL_NAMES.get(name, name), field.shape, field.dtype)
            _fill(array, dataset, name, field)


def _fill(array: Any, dataset: DatasetFields, name: str, field: _Field) -> Any:
    written = 0
    for piece in _pieces(dataset, name, field):
        array[written : written + len(piece)] = piece
        written += len(piece)
    return array


_WRITERS: dict[str, Callable[[DatasetFields, Path], None]] = {
    ".npz": _write_npz, ".pt": _write_pt, ".hdf5": _write_hdf5, ".h5": _write_hdf5,
    ".pth": _write_pt,
}  # fmt: skip
