"""Shared by all tests: one cache for built-in datasets, small runs that take a second."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rl_training.data import TransitionDataset
from rl_training.runtime import TrainConfig
from tests.support.algorithms import collects, own_env, starts_from_logs
from tests.support.data import make_fields

pytest.register_assert_rewrite("tests.support.runs")


@pytest.fixture(autouse=True, scope="session")
def _shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Built-in datasets are made once per test session, not once per test or worker."""
    root = tmp_path_factory.getbasetemp()
    shared = root.parent if root.name.startswith("popen-") else root
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RL_TRAINING_CACHE", str(shared / "rl_training_cache"))
        yield


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _restore_reporting() -> Iterator[None]:
    """The command line redirects notes and warnings; later tests want the defaults."""
    logger, shown = logging.getLogger("rl_training"), warnings.showwarning
    handlers, level, propagate = list(logger.handlers), logger.level, logger.propagate
    yield
    logger.handlers, logger.level, logger.propagate = handlers, level, propagate
    warnings.showwarning = shown


@pytest.fixture
def dataset() -> TransitionDataset:
    return TransitionDataset.from_dict(make_fields())


@pytest.fixture
def log_file(tmp_path: Path) -> Path:
    path = tmp_path / "log.npz"
    np.savez(path, **make_fields())
    return path


ConfigMaker = Callable[..., TrainConfig]


@pytest.fixture
def small_config(tmp_path: Path, log_file: Path) -> ConfigMaker:
    """A run of a second on a log, without an environment unless asked for or needed."""

    def make(algo: str = "td3_bc", **changes: Any) -> TrainConfig:
        source: dict[str, Any] = {"dataset_kind": "npz", "dataset_path": str(log_file)}
        if starts_from_logs(algo):
            source |= {"learning_starts": 10}
            changes = {"env_id": own_env(algo), "eval_episodes": 0, **changes}
        if collects(algo):
            source = {"learning_starts": 10}
            changes = {"env_id": own_env(algo), "eval_episodes": 0, **changes}
        kwargs = {
            **source,
            "batch_size": 16,
            "hidden_sizes": [8, 8],
            **changes.pop("algo_kwargs", {}),
        }
        values = {
            "algo": algo,
            "output_dir": str(tmp_path / "runs"),
            "total_timesteps": 40,
            "log_interval": 10,
            "checkpoint_interval": 10,
            **changes,
        }
        return TrainConfig(**values, algo_kwargs=kwargs)

    return make


@pytest.fixture
def pendulum_config(tmp_path: Path) -> ConfigMaker:
    """A run of a second with evaluations."""

    def make(algo: str = "td3_bc", **changes: Any) -> TrainConfig:
        source: dict[str, Any] = {"dataset_kind": "random", "dataset_size": 300}
        if collects(algo):
            source = {"learning_starts": 9, "gradient_updates_per_step": 1, "train_frequency": 1}
        elif starts_from_logs(algo):
            source |= {"learning_starts": 4, "gradient_updates_per_step": 1}
        kwargs = {
            **source,
            "batch_size": 16,
            "hidden_sizes": [8, 8],
            "eval_interval": 15,
            **changes.pop("algo_kwargs", {}),
        }
        values = {
            "algo": algo,
            "env_id": own_env(algo),
            "env_kwargs": {"max_episode_steps": 30},
            "output_dir": str(tmp_path / "runs"),
            "total_timesteps": 40,
            "eval_episodes": 2,
            "log_interval": 7,
            "checkpoint_interval": 10,
            **changes,
        }
        return TrainConfig(**values, algo_kwargs=kwargs)

    return make
