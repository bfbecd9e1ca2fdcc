"""Memory that the passes use again and again.

An allocator gives large blocks back to the system, which hands out new ones page by page: that can
cost a third of an update. What is taken here belongs to its taker, who gives it back when nothing
else holds it; what is never given back is freed as any tensor is.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

MOST = 64  # of one shape; more than the passes of one loss need
SMALL = 2**14  # numbers in a tensor up to which fresh memory costs less

Free = dict[tuple[tuple[int, ...], torch.dtype], list[Tensor]]


class Pool(threading.local):
    """Uninitialised tensors by shape, for one thread."""

    def __init__(self) -> None:
        self._free: Free = {}

    def take(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        free = self._free.get((shape, dtype))
        return free.pop() if free else torch.empty(shape, dtype=dtype)

    def give(self, *tensors: Tensor) -> None:
        for tensor in tensors:
            if tensor.numel() <= SMALL:
                continue
            free = self._free.setdefault((tensor.shape, tensor.dtype), [])
            if len(free) < MOST:
                free.append(tensor)

    @contextmanager
    def replaced_by(self, free: Free) -> Iterator[None]:
        """Take from and give to these, for whoever goes on using what is taken here."""
        before, self._free = self._free, free
        try:
            yield
        finally:
            self._free = before


POOL = Pool()
