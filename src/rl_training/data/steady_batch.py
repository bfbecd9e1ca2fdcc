"""A batch that stays where it is while what it holds changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from weakref import ref

import torch
from torch import Tensor

from rl_training.data.batch import Batch


class SteadyBatch:
    """Memory of its own, laid out as that of the batch that it is made like."""

    def __init__(self, model: Batch) -> None:
        values = {name: getattr(model, name) for name in _NAMES}
        rows = model._rows
        in_rows = {name for name, value in values.items() if _is_view(value, rows)}
        self._copied = [n for n in _NAMES if values[n] is not None and n not in in_rows]
        own = {name: _like(values[name]) for name in self._copied}
        for name in in_rows:
            assert rows is not None
            value = values[name]
            offset = value.storage_offset() - rows.storage_offset()
            own[name] = own["_rows"].as_strided(value.shape, value.stride(), offset)
        place = own.pop("_rows", None)
        self.batch = Batch(**own)
        object.__setattr__(self.batch, "_rows", place)
        self._form = model.form
        self._source: Callable[[], Batch | None] = lambda: None
        self._version = 0
        self.fill(model)

    def fits(self, batch: Batch) -> bool:
        return self._source() is batch or self._form == batch.form

    def fill(self, batch: Batch) -> None:
        """Take over what another batch of the same form holds, unless that is here already."""
        rows = batch._rows
        if rows is not None:
            if self._source() is batch and self._version == rows._version:
                return
            self._source, self._version = ref(batch), rows._version
        for name in self._copied:
            getattr(self.batch, name).copy_(getattr(batch, name))


_NAMES = tuple(field.name for field in fields(Batch))


def _is_view(value: Tensor | None, rows: Tensor | None) -> bool:
    if value is None or rows is None or value is rows:
        return False
    return value.untyped_storage()._cdata == rows.untyped_storage()._cdata


def _like(value: Tensor) -> Tensor:
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
