"""Memory of this machine, compared with what is about to be allocated."""

from __future__ import annotations

import os
import re
from pathlib import Path

from rl_training.config import ConfigError, Problem

_UNKNOWN = 2**40  # where the system does not say
_CGROUPS = (  # limit and use of a container, of control groups version 2 and 1
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


def machine_memory() -> int:
    """Bytes of memory of this machine."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not Unix
        return _UNKNOWN


def available_memory() -> int:
    """Bytes that this process could still take: of the machine, and of its container."""
    free = re.search(r"MemAvailable:\s+(\d+) kB", _read("/proc/meminfo"))
    rooms = [int(free[1]) * 1024 if free else machine_memory()]
    for limit, use in _CGROUPS:
        bounds = _read(limit).strip(), _read(use).strip()
        if all(bound.isdecimal() for bound in bounds):
            rooms.append(int(bounds[0]) - int(bounds[1]))
    return max(0, min(rooms))


def check_replay_fits(capacity: int, row_bytes: int, rows: int) -> None:
    """Refuse a replay buffer beyond the memory; memory counts once a row is written, so `rows` must be free.

    Args:
        capacity: Rows that are allocated.
        row_bytes: Bytes of one row.
        rows: Rows that the run will write at most.
    """
    needed, there = min(rows, capacity) * row_bytes, available_memory()
    if needed <= there and capacity * row_bytes <= machine_memory():
        return
    enough = rows <= there // row_bytes
    advice = f"this run fills {rows:,}" if enough else f"{there // row_bytes:,} fit"
    raise ConfigError(
        [
            Problem(
                ("algo_kwargs", "buffer_capacity"),
                f"{capacity:,} rows of {row_bytes} bytes are {_gigabytes(capacity * row_bytes)}, and "
                f"{_gigabytes(there)} of memory are free: lower it ({advice})",
            )
        ]
    )


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB"


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
