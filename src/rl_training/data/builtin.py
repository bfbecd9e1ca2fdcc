"""Behaviour datasets that need no download: built on first use from a scripted policy, then cached.

The id ends in a version: another recipe is another id, so that a cached file is never stale.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rl_training.config import DatasetError, suggest
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.packed_cache import cache_dir
from rl_training.data.random_data import Rows, roll_out


@dataclass(frozen=True)
class BuiltinDataset:
    """How one dataset comes about."""

    description: str
    env_id: str
    build: Callable[[], Rows]


def load_builtin(dataset_id: str) -> TransitionDataset:
    """The dataset, from the cache or built now, with next actions."""
    if dataset_id not in BUILTIN:
        known = ", ".join(BUILTIN)
        hint = suggest(dataset_id, BUILTIN) or f" (known: {known})"
        raise DatasetError(f"there is no builtin dataset {dataset_id!r}{hint}")
    rows = _read_cache(dataset_id)
    if rows is None:
        rows = BUILTIN[dataset_id].build()
        _write_cache(dataset_id, rows)
    return TransitionDataset.from_dict(rows, dataset_id).with_next_actions()


def cache_path(dataset_id: str) -> Path:
    """Where the dataset is kept; a JSON file beside it holds its SHA-256."""
    return cache_dir() / "builtin" / f"{dataset_id.replace('/', '-')}.npz"


def _read_cache(dataset_id: str) -> Rows | None:
    path = cache_path(dataset_id)
    try:
        content = path.read_bytes()
        expected = json.loads(path.with_suffix(".json").read_text())["sha256"]
    except OSError:  # not built yet, or being written by another process right now
        return None
    except (ValueError, KeyError, TypeError):
        expected = None
    if hashlib.sha256(content).hexdigest() != expected:
        warnings.warn(f"{path} is damaged and is built again", stacklevel=3)
        return None
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def _write_cache(dataset_id: str, rows: Rows) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, **rows)  # type: ignore[arg-type]
    content = buffer.getvalue()
    facts = {
        "dataset_id": dataset_id,
        "sha256": hashlib.sha256(content).hexdigest(),
        "gymnasium": gym.__version__,
        "numpy": np.__version__,
    }
    path = cache_path(dataset_id)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, content)
        _replace(path.with_suffix(".json"), json.dumps(facts, indent=2).encode())
    except OSError as error:
        warnings.warn(
            f"{dataset_id} is kept in memory only: {path.parent} cannot be written "
            f"({error.strerror}). Set RL_TRAINING_CACHE to another directory.",
            stacklevel=3,
        )


def _replace(path: Path, content: bytes) -> None:
    """Write in one step, so that a process that builds at the same time never sees half a file."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _pendulum_torque(obs: NDArray[Any]) -> float:
    """Swings the pendulum up by pumping energy, then holds it; about -160 per episode."""
    cos, sin, speed = (float(value) for value in obs)
    if cos > 0.8 and abs(speed) < 3.5:
        torque = -10.0 * math.atan2(sin, cos) - 2.5 * speed
    else:
        missing_energy = 5.0 - 5.0 * cos - speed**2 / 6.0  # m g l / 2 = 5, inertia 1/3
        # At rest, hanging, there is no motion to pump: push to either side.
        torque = 4.0 * missing_energy * (speed or 1.0)
    # The limit of 2 is left to noise: data that sits on the bounds hides what lies beyond them.
    return max(-1.7, min(1.7, torque))


def _fold(torque: float) -> float:
    """Into [-2, 2] by reflection: clipped noise would pile up on the bounds."""
    if abs(torque) > 2.0:
        torque = math.copysign(4.0, torque) - torque
    return max(-2.0, min(2.0, torque))


def _pendulum(episodes: int, levels: Sequence[tuple[float, float]], seed: int) -> Rows:
    """Whole episodes, taking the levels (share of random actions, noise) in turn."""
    env = gym.make("Pendulum-v1")
    rng = np.random.default_rng(seed)
    parts = []
    for episode in range(episodes):
        random_share, noise = levels[episode % len(levels)]

        def act(
            obs: NDArray[Any], random_share: float = random_share, noise: float = noise
        ) -> NDArray[np.float32]:
            if rng.random() < random_share:
                torque = rng.uniform(-2.0, 2.0)
            else:
                torque = _fold(_pendulum_torque(obs) + noise * rng.standard_normal())
            return np.array([torque], np.float32)

        parts.append(roll_out(env, act, 200, seed=seed + episode))
    env.close()
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


_MIXED_LEVELS = [(share, 1.0) for share in (0.7, 0.6, 0.5, 0.3, 0.1, 0.0)]

BUILTIN: dict[str, BuiltinDataset] = {
    "pendulum/mixed-v0": BuiltinDataset(
        "40,000 transitions of a swing-up controller at six levels of skill, from poor to good",
        "Pendulum-v1",
        lambda: _pendulum(200, _MIXED_LEVELS, seed=20_000),
    ),
    "pendulum/expert-v0": BuiltinDataset(
        "20,000 transitions of a swing-up controller with little noise: narrow, nearly optimal",
        "Pendulum-v1",
        lambda: _pendulum(100, [(0.0, 0.05)], seed=40_000),
    ),
}
