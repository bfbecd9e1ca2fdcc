"""Datasets that the package builds itself on first use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rl_training.data.formats import DatasetFormat, register_format
from rl_training.data.packing.source import ArraySource


@contextmanager
def open_builtin(dataset_id: str) -> Iterator[ArraySource]:
    from rl_training.data.builtin.library import builtin_rows

    yield ArraySource(builtin_rows(dataset_id), dataset_id)


register_format(
    DatasetFormat("builtin", open_builtin, keys=("dataset_id",), derives_next_actions=True)
)
