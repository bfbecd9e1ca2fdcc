"""Memory that a run has freed stays with the process, as its next update will ask for it again."""

from __future__ import annotations

import ctypes
import os
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h
LARGEST, KEPT = 32 * 2**20, 512 * 2**20  # bytes; the first is the most that glibc takes


def keep_freed_memory() -> None:
    """Otherwise large networks pay for fresh pages at every update, by chance of the layout.

    For glibc only; where the user has set the like in the environment, that holds.
    """
    if sys.platform != "linux" or any(name.startswith("MALLOC_") for name in os.environ):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, LARGEST)
        mallopt(M_TRIM_THRESHOLD, KEPT)
