"""Sources of named arrays that are read in pieces, from a file or from memory."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

PIECE_BYTES = 4 << 20  # a piece is copied, compared and checked while it is in the cache


class FieldInfo(NamedTuple):
    """Shape and type of a field, known before its values are read."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class FieldSource(Protocol):
    """Named arrays to pack or to write. Rows are asked for in rising order, so streams are fine."""

    @property
    def label(self) -> str:
        """Name of the source in errors, such as `data.npz`."""

    @property
    def fields(self) -> Mapping[str, FieldInfo]:
        """Shape and type of the arrays, by their names in the source."""

    @property
    def remarks(self) -> Mapping[str, str | int]:
        """Single values that our own files hold beside their arrays: `boundaries`, ..."""

    def read(self, field: str, start: int, stop: int) -> Array:
        """Rows start to stop of one field."""


class ArraySource:
    """Arrays, tensors or lists that are in memory already."""

    def __init__(self, values: Mapping[str, Any], label: str = "data") -> None:
        self.label = label
        arrays = {key: as_array(value) for key, value in values.items() if value is not None}
        self.remarks = {k: a.item() for k, a in arrays.items() if is_remark(k, a.shape, a.dtype)}
        self._arrays = {key: a for key, a in arrays.items() if key not in self.remarks}
        self.fields = {key: FieldInfo(a.shape, a.dtype) for key, a in self._arrays.items()}

    def read(self, field: str, start: int, stop: int) -> Array:
        return self._arrays[field][start:stop]


def piece_rows(width: int) -> int:
    """Number of rows, of `width` float32 each, that are handled at a time."""
    return max(1, PIECE_BYTES // (4 * max(1, width)))


def pieces_of(source: FieldSource, field: str) -> Iterator[tuple[int, Array]]:
    """All rows of one field, a few megabytes at a time, each piece with the number of its first row."""
    shape = source.fields[field].shape
    size = piece_rows(math.prod(shape[1:]))
    for start in range(0, shape[0], size):
        yield start, source.read(field, start, min(start + size, shape[0]))


def read_whole(source: FieldSource, field: str) -> Array:
    """All rows of one field in one array."""
    array = np.empty(*source.fields[field])
    for start, piece in pieces_of(source, field):
        array[start : start + len(piece)] = piece
    return array


def is_remark(name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
    """True for the single values that our own files hold beside their arrays."""
    single = shape == () and dtype.kind in "Uiu" and dtype.itemsize <= 320
    return name in ("boundaries", "num_actions", "first_action") and single


def as_array(values: Any) -> Array:
    """View a tensor as a NumPy array, or make an array of a list."""
    torch = sys.modules.get("torch")  # who has a tensor has imported it
    try:
        if torch is not None and isinstance(values, torch.Tensor):
            tensor = values.detach().cpu().to_dense()
            # NumPy has no bfloat16.
            return tensor.float().numpy() if tensor.dtype == torch.bfloat16 else tensor.numpy()
        return np.asarray(values)
    except (TypeError, ValueError, RuntimeError):
        # A ragged list, or a tensor that NumPy has no type for: refused later by the name of its
        # field, and only if the field is one of ours.
        array = np.empty((), dtype=object)
        array[()] = values
        return array
