"""Dicts of tensors as `torch.save` writes them: mapped from the file, pickled objects refused."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.config import DatasetError, first_line
from rl_training.data.formats import DatasetFormat, register_format
from rl_training.data.packing.archives import open_archive, verify_members
from rl_training.data.packing.sizes import check_unpacked_size
from rl_training.data.packing.source import ArraySource, FieldSource, read_whole

_ADVICE = (
    "; if it was written after torch.serialization.set_crc32_options(False), "
    "save it again with checksums"
)


@contextmanager
def open_pt(dataset_path: Path) -> Iterator[ArraySource]:
    """Open a .pt file of tensors by name, or say what the file is instead."""
    import torch

    path = dataset_path
    # Files of torch < 1.6 are no zip archives and cannot be mapped.
    with path.open("rb") as file:
        mapped = file.read(4) == b"PK\x03\x04"  # torch tells them apart in the same way
    if mapped:
        with open_archive(path, ".pt") as archive:
            verify_members(archive, path.name, _ADVICE)
    try:
        values: Any = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except pickle.UnpicklingError:
        raise DatasetError(
            f"{path.name} is not a .pt file of plain tensors; "
            "pickled objects are refused because loading them can run code"
        ) from None
    except Exception as error:  # on bytes that are no pickle, unpickling fails in any way
        raise DatasetError(
            f"{path.name} is not a .pt file, or is cut off ({first_line(error)})"
        ) from None
    if not isinstance(values, dict):
        raise DatasetError(
            f"{path.name} holds a {type(values).__name__}; expected a dict of tensors by name"
        )
    yield ArraySource(_plain_fields(values, path), path.name)


def _plain_fields(values: dict[Any, Any], path: Path) -> dict[str, Any]:
    """Take tensors and single values; lists and the like are refused later, if they are fields of ours."""
    import torch

    fields: dict[str, Any] = {}
    unpacked = 0
    for key, value in values.items():
        if not isinstance(key, str):
            raise DatasetError(
                f"{path.name} has a key of type {type(key).__name__}; names are text"
            )
        if isinstance(value, torch.Tensor):
            # A view, or a sparse tensor, can be larger than what it is made of, without bounds.
            unpacked += value.numel() * value.element_size()
        # Nested lists can share their parts, and be as large as they like when they are written out.
        is_plain = isinstance(value, (torch.Tensor, str, int, float, bool, type(None)))
        fields[key] = value if is_plain else np.array(None, dtype=object)
    check_unpacked_size(path.name, unpacked, path.stat().st_size)
    return fields


def write_pt(source: FieldSource, path: Path) -> None:
    import torch

    tensors = {name: torch.from_numpy(read_whole(source, name)) for name in source.fields}
    torch.save({**source.remarks, **tensors}, path)


register_format(DatasetFormat("pt", open_pt, endings=(".pt", ".pth"), write=write_pt))
