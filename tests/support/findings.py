"""A dataset without faults to break in tests, and the findings about it."""

import numpy as np

from rl_training.data.checks.dataset_checks import Finding, check_dataset
from rl_training.data.offline_dataset import TransitionDataset


def clean(episodes: int = 4, length: int = 25, seed: int = 0) -> dict[str, np.ndarray]:
    """A dataset without faults: episodes of one length that are truncated."""
    rng = np.random.default_rng(seed)
    size = episodes * length
    path = rng.normal(size=(episodes, length + 1, 3)).astype(np.float32)
    truncations = np.zeros(size, bool)
    truncations[length - 1 :: length] = True
    return {
        "obs": path[:, :-1].reshape(size, 3).copy(),
        "actions": rng.uniform(-0.95, 0.95, (size, 2)).astype(np.float32),
        "rewards": rng.normal(size=size).astype(np.float32),
        "next_obs": path[:, 1:].reshape(size, 3).copy(),
        "terminations": np.zeros(size, bool),
        "truncations": truncations,
    }


def terminate(fields: dict[str, np.ndarray], rows: list[int]) -> None:
    """End episodes at these rows, with a last observation that is not the next episode's first."""
    fields["terminations"][rows] = True
    fields["next_obs"][rows] += 1


def check(fields: dict[str, np.ndarray], **bounds: float) -> list[Finding]:
    return check_dataset(TransitionDataset(**fields), **bounds)


def only(findings: list[Finding]) -> Finding:
    assert len(findings) == 1, findings
    assert findings[0].fix
    return findings[0]
