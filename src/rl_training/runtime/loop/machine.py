"""Settings of the process that training wants: threads of PyTorch, memory of the allocator."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h
LARGEST_BLOCK = 32 * 2**20  # bytes; the most that glibc takes
RETAINED = 512 * 2**20  # bytes


@contextmanager
def using_machine(threads: int) -> Iterator[None]:
    """Train with so many threads of PyTorch; afterwards their number is what it was."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    keep_freed_memory()
    try:
        yield
    finally:
        torch.set_num_threads(before)


def keep_freed_memory() -> None:
    """Let glibc keep freed memory in the process, because the next update asks for it again.

    Otherwise large networks pay for fresh pages at every update, depending on the heap's layout.
    Settings that the user has made in the environment (`MALLOC_...`) hold.
    """
    if sys.platform != "linux" or any(name.startswith("MALLOC_") for name in os.environ):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, LARGEST_BLOCK)
        mallopt(M_TRIM_THRESHOLD, RETAINED)
