"""A small log."""

from __future__ import annotations

from typing import Any

import numpy as np


def make_fields(
    rows: int = 400, obs_dim: int = 3, action_dim: int = 2, seed: int = 0
) -> dict[str, Any]:
    """A log of episodes of 20 steps: every other one terminates, the rest are truncated."""
    rng = np.random.default_rng(seed)
    obs = rng.standard_normal((rows + 1, obs_dim)).astype(np.float32)
    ends = np.arange(1, rows + 1) % 20 == 0
    terminations = ends & (np.arange(rows) // 20 % 2 == 0)
    next_obs = obs[1:].copy()
    next_obs[ends] += 1  # the true last observation is not the next episode's first
    return {
        "obs": obs[:-1],
        "actions": rng.uniform(-1, 1, (rows, action_dim)).astype(np.float32),
        "rewards": rng.standard_normal(rows).astype(np.float32),
        "next_obs": next_obs,
        "terminations": terminations,
        "truncations": ends & ~terminations,
    }
