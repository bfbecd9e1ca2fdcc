"""Memory that the passes use again and again.

An allocator gives large blocks back to the system, which hands out new ones page by page: that can
cost a third of an update. What is taken here belongs to its taker, who gives it back when nothing
else holds it; what is never given back is freed as any tensor is.
"""

from __future__ import annotations

import torch
from torch import Tensor

MOST = 64  # of one shape; more than the passes of one loss need
SMALL = 2**14  # numbers in a tensor up to which fresh memory costs less


class Pool:
    """Uninitialised tensors by shape."""

    def __init__(self) -> None:
        self._free: dict[tuple[tuple[int, ...], torch.dtype], list[Tensor]] = {}

    def take(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        free = self._free.get((shape, dtype))
        if free:
            try:
                return free.pop()
            except IndexError:  # another thread was quicker
                pass
        return torch.empty(shape, dtype=dtype)

    def give(self, *tensors: Tensor) -> None:
        for tensor in tensors:
            if tensor.numel() <= SMALL:
                continue
            free = self._free.setdefault((tensor.shape, tensor.dtype), [])
            if len(free) < MOST:
                free.append(tensor)


POOL = Pool()
