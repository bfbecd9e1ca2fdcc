"""Bounds on what a file may unpack to: a small file that claims to be huge is refused before it is read."""

from __future__ import annotations

from rl_training.config import DatasetError

_ALWAYS_FINE = 64 << 20  # bytes
# Deflate, which .npz and .hdf5 use, packs at most 1032 to 1, and only data that is all the same.
_LARGEST_RATIO = 1100


def check_unpacked_size(label: str, unpacked: int, stored: int) -> None:
    """Refuse content of `unpacked` bytes in a file of `stored` bytes if no sensible data is like that."""
    if unpacked > max(_ALWAYS_FINE, _LARGEST_RATIO * stored):
        raise DatasetError(
            f"{label} has {_size(stored)} and claims to hold {_size(unpacked)}: it is damaged, or made "
            "to fill the memory"
        )


def _size(count: int) -> str:
    if count >= 10**18:
        return "more than 10^9 GB"
    return f"{count / 1e9:,.1f} GB" if count >= 10**8 else f"{count:,} bytes"
