"""Returns and lengths of episodes while they are collected."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass
class Episodes:
    """Returns and lengths of running episodes, and of those that ended since the last report."""

    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]
    ended: list[tuple[float, int]] = field(default_factory=list)

    def end(self, env_ids: NDArray[np.int64]) -> None:
        for env_id in env_ids:
            self.ended.append((float(self.returns[env_id]), int(self.lengths[env_id])))
        self.returns[env_ids] = 0
        self.lengths[env_ids] = 0

    def report(self) -> dict[str, float]:
        """Return means over the episodes that ended since the last report."""
        if not self.ended:
            return {}
        returns, lengths = zip(*self.ended, strict=True)
        self.ended = []
        return {
            "rollout/return_mean": float(np.mean(returns)),
            "rollout/length_mean": float(np.mean(lengths)),
            "rollout/episodes": float(len(returns)),
        }
