"""A batch that stays where it is while what it holds changes."""

from __future__ import annotations

from collections.abc import Callable
from weakref import ref

from rl_training.data.transitions.batch import Batch


class SteadyBatch:
    """Memory of its own, laid out as that of the batch that it is made like."""

    def __init__(self, model: Batch) -> None:
        self.batch = model.copy()
        self._held, self._form = model.held(), model.form
        self._source: Callable[[], Batch | None] = lambda: None
        self._versions: list[int] = []

    def fits(self, batch: Batch) -> bool:
        return self._source() is batch or self._form == batch.form

    def fill(self, batch: Batch) -> None:
        """Take over what another batch of the same form holds, unless that is here already."""
        versions = [getattr(batch, name)._version for name in self._held]
        if self._source() is batch and self._versions == versions:
            return
        self._source, self._versions = ref(batch), versions
        for name in self._held:
            getattr(self.batch, name).copy_(getattr(batch, name))
