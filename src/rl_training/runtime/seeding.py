"""Named random streams: evaluating or logging draws nothing from the stream of training."""

from __future__ import annotations

import zlib
from typing import Literal

import numpy as np

Stream = Literal[
    "init",
    "data",
    "update",
    "exploration",
    "environment",
    "evaluation",
    "scoring",
    "dataset",
    "validation",
]


def stream_seed(seed: int, stream: Stream) -> int:
    """Return the 63-bit seed of one stream of a run."""
    words = np.random.SeedSequence([seed, zlib.crc32(stream.encode())]).generate_state(1, np.uint64)
    return int(words[0] >> np.uint64(1))


def episode_seeds(seed: int, stream: Stream, count: int) -> list[int]:
    """Return reset seeds for `count` episodes, equal for every call, so that scores compare."""
    sequence = np.random.SeedSequence([seed, zlib.crc32(stream.encode())])
    return [int(word) for word in sequence.generate_state(count, np.uint32)]
