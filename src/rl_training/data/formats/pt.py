"""Reads a dict of tensors written by `torch.save`, mapped from the file and without pickle."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from rl_training.config import DatasetError
from rl_training.data.packing.source import ArraySource


@contextmanager
def open_pt(path: Path) -> Iterator[ArraySource]:
    """A readable .pt of tensors by name, or an error that says what the file is instead."""
    # Files of torch < 1.6 are no zip archives and cannot be mapped.
    mapped = zipfile.is_zipfile(path)
    try:
        values: Any = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except pickle.UnpicklingError:
        raise DatasetError(
            f"{path.name} is not a .pt file of plain tensors; "
            "pickled objects are refused because loading them can run code"
        ) from None
    except Exception as error:  # on bytes that are no pickle, its machine fails in any way
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DatasetError(f"{path.name} is not a .pt file, or is cut off ({reason})") from None
    if not isinstance(values, dict):
        raise DatasetError(
            f"{path.name} holds a {type(values).__name__}; expected a dict of tensors by name"
        )
    yield ArraySource({str(key): value for key, value in values.items()}, path.name)
