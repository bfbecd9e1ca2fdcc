"""Dicts of tensors as `torch.save` writes them: mapped from the file, pickled objects refused."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rl_training.config import DatasetError
from rl_training.data.formats import DatasetFormat, register_format
from rl_training.data.packing.source import ArraySource, FieldSource, read_whole


@contextmanager
def open_pt(dataset_path: Path) -> Iterator[ArraySource]:
    """Open a .pt file of tensors by name, or say what the file is instead."""
    import torch

    path = dataset_path
    # Files of torch < 1.6 are no zip archives and cannot be mapped.
    mapped = zipfile.is_zipfile(path)
    try:
        values: Any = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except pickle.UnpicklingError:
        raise DatasetError(
            f"{path.name} is not a .pt file of plain tensors; "
            "pickled objects are refused because loading them can run code"
        ) from None
    except Exception as error:  # on bytes that are no pickle, unpickling fails in any way
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DatasetError(f"{path.name} is not a .pt file, or is cut off ({reason})") from None
    if not isinstance(values, dict):
        raise DatasetError(
            f"{path.name} holds a {type(values).__name__}; expected a dict of tensors by name"
        )
    yield ArraySource({str(key): value for key, value in values.items()}, path.name)


def write_pt(source: FieldSource, path: Path) -> None:
    import torch

    tensors = {name: torch.from_numpy(read_whole(source, name)) for name in source.fields}
    torch.save({**source.remarks, **tensors}, path)


register_format(DatasetFormat("pt", open_pt, endings=(".pt", ".pth"), write=write_pt))
