"""Writes a dataset to .npz, .pt or .hdf5, aside first, so that a file is whole or not there."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rl_training.config import DatasetError, MissingExtraError, OutputError
from rl_training.data.field_source import Array

if TYPE_CHECKING:
    from rl_training.data.dataset_fields import DatasetFields

D4RL_NAMES = {
    "obs": "observations", "next_obs": "next_observations",
    "terminations": "terminals", "truncations": "timeouts",
}  # fmt: skip


def save_fields(dataset: DatasetFields, path: Path) -> None:
    """Choose the format by suffix, write beside the target, then rename."""
    write = _WRITERS.get(path.suffix.lower())
    if write is None:
        raise DatasetError(f"{path.name}: unknown suffix; use one of {', '.join(_WRITERS)}")
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(dataset, aside)
        aside.replace(path)
    except (OSError, RuntimeError) as error:  # torch reports a full disk as the latter
        reason = getattr(error, "strerror", None) or error
        raise OutputError(f"cannot write {path}: {reason}") from None
    finally:
        aside.unlink(missing_ok=True)


def _fields(dataset: DatasetFields) -> dict[str, tuple[int | slice, np.dtype[Any]]]:
    """Our field names, their columns and the type they have in a file."""
    layout = dataset.layout
    number, flag = np.dtype(np.float32), np.dtype(np.bool_)
    action = np.dtype(np.int64) if layout.discrete else number
    fields: dict[str, tuple[int | slice, np.dtype[Any]]] = {
        "obs": (layout.obs, number),
        "actions": (layout.actions.start if layout.discrete else layout.actions, action),
        "rewards": (layout.reward, number),
        "next_obs": (layout.next_obs, number),
        "terminations": (layout.termination, flag),
        "truncations": (layout.truncation, flag),
    }
    if layout.has_next_actions:
        where = layout.next_actions
        fields["next_actions"] = (where.start if layout.discrete else where, action)
        fields["next_action_valid"] = (layout.next_action_valid, flag)
    return fields


def _shape(dataset: DatasetFields, columns: int | slice) -> tuple[int, ...]:
    rows = len(dataset)
    return (rows,) if isinstance(columns, int) else (rows, columns.stop - columns.start)


def _remarks(dataset: DatasetFields) -> dict[str, str | int]:
    """What cannot be seen from the arrays alone."""
    choices = {} if dataset.num_actions is None else {"num_actions": dataset.num_actions}
    return {"boundaries": dataset.boundaries, **choices}


def _column_pieces(dataset: DatasetFields, name: str) -> Iterator[Array]:
    columns, dtype = _fields(dataset)[name]
    for values in dataset.column_pieces(columns):
        yield np.ascontiguousarray(values.numpy(), dtype=dtype)


def _write_npz(dataset: DatasetFields, path: Path) -> None:
    # One member after the other, because a zip file is written in order.
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, (columns, dtype) in _fields(dataset).items():
            header = {"descr": dtype.str, "fortran_order": False,
                      "shape": _shape(dataset, columns)}  # fmt: skip
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array_header_1_0(member, header)
                for values in _column_pieces(dataset, name):
                    member.write(values.data)
        for name, value in _remarks(dataset).items():
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, np.asarray(value), allow_pickle=False)


def _write_pt(dataset: DatasetFields, path: Path) -> None:
    values: dict[str, Any] = dict(_remarks(dataset))
    for name, (columns, dtype) in _fields(dataset).items():
        whole = np.empty(_shape(dataset, columns), dtype)
        written = 0
        for piece in _column_pieces(dataset, name):
            whole[written : written + len(piece)] = piece
            written += len(piece)
        values[name] = torch.from_numpy(whole)
    torch.save(values, path)


def _write_hdf5(dataset: DatasetFields, path: Path) -> None:
    try:
        import h5py
    except ImportError:
        raise MissingExtraError("writing .hdf5", "h5py", "hdf5") from None
    with h5py.File(path, "w") as file:
        file.attrs.update(_remarks(dataset))
        for name, (columns, dtype) in _fields(dataset).items():
            shape = _shape(dataset, columns)
            array = file.create_dataset(D4RL_NAMES.get(name, name), shape, dtype)
            written = 0
            for piece in _column_pieces(dataset, name):
                array[written : written + len(piece)] = piece
                written += len(piece)


_WRITERS: dict[str, Callable[[DatasetFields, Path], None]] = {
    ".npz": _write_npz, ".pt": _write_pt, ".hdf5": _write_hdf5, ".h5": _write_hdf5,
}  # fmt: skip
