"""The built-in datasets: made on first use from scripted policies, then cached.

The id ends in a version: another recipe is another id, so that a cached file is never stale.
"""

from __future__ import annotations

import io
import json
import os
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import gymnasium as gym
import numpy as np

from rl_training.config import DatasetError, suggest
from rl_training.data.builtin.rows import Rows
from rl_training.data.builtin.scripted_policies import cart_pole, mountain_car, pendulum
from rl_training.data.packing.cache import cache_dir
from rl_training.files import read_json, read_regular, sha256_of


@dataclass(frozen=True)
class BuiltinDataset:
    """The recipe of one dataset."""

    description: str
    env_id: str
    build: Callable[[], Rows]


def builtin_rows(dataset_id: str) -> Rows:
    """Read a dataset from the cache, or build it now."""
    if dataset_id not in BUILTIN:
        hint = suggest(dataset_id, BUILTIN) or f" (known: {', '.join(BUILTIN)})"
        raise DatasetError(f"there is no builtin dataset {dataset_id!r}{hint}")
    rows = _read_cache(dataset_id)
    if rows is None:
        rows = BUILTIN[dataset_id].build()
        _write_cache(dataset_id, rows)
    return rows


def cache_path(dataset_id: str) -> Path:
    """The cached file; a JSON file beside it holds its SHA-256."""
    return cache_dir() / "builtin" / f"{dataset_id.replace('/', '-')}.npz"


def _read_cache(dataset_id: str) -> Rows | None:
    path = cache_path(dataset_id)
    try:
        content = read_regular(path)
        expected = read_json(path.with_suffix(".json"))["sha256"]
    except OSError:  # not built yet, or being written by another process right now
        return None
    except (ValueError, KeyError, TypeError):
        expected = None
    if sha256_of(content) != expected:
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
        "sha256": sha256_of(content),
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


# Levels of skill are explained with the tasks. On CartPole one episode in six keeps to the middle
# of the track, the others steer beyond its end: cloning follows the many.
_CART_POLE_LEVELS = [(0.4, 0.0), (0.3, 3.0), (0.3, 3.0), (0.5, 3.0), (0.3, 3.0), (0.3, 3.0)]
# Half of the MountainCar episodes gain no energy: pushes cancel out, and cloning stands still.
_MOUNTAIN_CAR_LEVELS = [1.0, 0.45, 0.75, 0.5, 0.6, 0.45, 0.9, 0.5]

BUILTIN: dict[str, BuiltinDataset] = {
    "pendulum/mixed-v0": BuiltinDataset(
        "40,000 transitions of a swing-up controller at six levels of skill, from poor to good",
        "Pendulum-v1",
        lambda: pendulum(200, [(share, 1.0) for share in (0.7, 0.6, 0.5, 0.3, 0.1, 0.0)], 20_000),
    ),
    "pendulum/expert-v0": BuiltinDataset(
        "20,000 transitions of a swing-up controller with little noise: narrow, nearly optimal",
        "Pendulum-v1",
        lambda: pendulum(100, [(0.0, 0.05)], 40_000),
    ),
    "cartpole/mixed-v0": BuiltinDataset(
        "24,700 transitions of a balancing controller, most of them steered off the track",
        "CartPole-v1",
        lambda: cart_pole(160, _CART_POLE_LEVELS, 60_000),
    ),
    "mountaincar/mixed-v0": BuiltinDataset(
        "42,900 transitions of an energy-pumping controller; about half of the episodes fail",
        "MountainCarContinuous-v0",
        lambda: mountain_car(64, _MOUNTAIN_CAR_LEVELS, 80_000),
    ),
}
