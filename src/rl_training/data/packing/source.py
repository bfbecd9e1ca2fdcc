"""Named arrays that can be read in pieces, whatever file or memory they live in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch

Array = npt.NDArray[Any]


class FieldInfo(NamedTuple):
    """Shape and type of a field, known before its values are read."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class FieldSource(Protocol):
    """What the packer reads from. Pieces are asked for in rising order, so streams are fine."""

    @property
    def label(self) -> str:
        """How errors name the source, such as `data.npz`."""

    @property
    def fields(self) -> Mapping[str, FieldInfo]:
        """The arrays by the names they have in the source."""

    @property
    def remarks(self) -> Mapping[str, str | int]:
        """What our own files say beside their arrays: `boundaries` and `num_actions`."""

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


def is_remark(name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
    """Whether an entry is one of the single values that our own files hold beside the fields."""
    return name in ("boundaries", "num_actions") and shape == () and dtype.kind in "Uiu"


def as_array(values: Any) -> Array:
    """A NumPy view of a tensor, or the array that a list describes."""
    try:
        if isinstance(values, torch.Tensor):
            tensor = values.detach().cpu().to_dense()
            # NumPy has no bfloat16.
            return tensor.float().numpy() if tensor.dtype == torch.bfloat16 else tensor.numpy()
        return np.asarray(values)
    except (TypeError, ValueError, RuntimeError):
        # A ragged list, or a tensor that NumPy has no type for: an object is refused by the name
        # of its field, and only if the field is one of ours.
        array = np.empty((), dtype=object)
        array[()] = values
        return array
