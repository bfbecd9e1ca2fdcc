"""One training loop for every algorithm and data regime, and its surroundings.

`train_<algo>(config, *, callbacks=(), dataset=None)` exists for every registered algorithm.

Public faces:

- `commands`: train, resume; `scoring`: evaluate and predict
- `trainer`: the training loop; `callbacks` and `controls`: hooks into it
- `collect`: new logs from a policy, or from the replay of a run

From a configuration to a trained policy:

- `config/`: `TrainConfig` and its validation
- `prepare`: datasets checked against the problem, scaled and normalised
- `preparation/`: loading and splitting, and these checks
- `policy`: normaliser, actor and action scaling as one function
- `experience/`: batches and environment steps, by data regime
- `assemble`: all parts of a run put together, new or from a checkpoint
- `run`, `run_directory`: execution of a run, in its directory
- `loop/`: state and callbacks of the training loop
- `evaluation/`, `checkpoints/`: scores and saved states
- `seeding`: named random streams
- `trust`: environments whose code a checkpoint may import
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from rl_training.algorithms.registry import list_algorithm_specs
from rl_training.config import ConfigError, Problem
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.runtime.callbacks import (
    Callback,
    CallbackList,
    EarlyStoppingCallback,
    EarlyStoppingConfig,
)
from rl_training.runtime.commands import resume, train
from rl_training.runtime.config.controls import ControlsConfig
from rl_training.runtime.config.train_config import TrainConfig
from rl_training.runtime.controls import build_control_callbacks
from rl_training.runtime.prepare import build_offline_dataset
from rl_training.runtime.scoring import evaluate_checkpoint, predict_checkpoint
from rl_training.runtime.trainer import TrainerState, TrainResult

__all__ = [
    "Callback",
    "CallbackList",
    "ControlsConfig",
    "EarlyStoppingCallback",
    "EarlyStoppingConfig",
    "TrainConfig",
    "TrainResult",
    "TrainerState",
    "build_control_callbacks",
    "build_offline_dataset",
    "evaluate_checkpoint",
    "predict_checkpoint",
    "resume",
    "train",
]


def _train_algorithm(
    algo: str,
    config: TrainConfig,
    *,
    callbacks: Iterable[Callback] = (),
    dataset: TransitionDataset | None = None,
) -> TrainResult:
    if config.algo != algo:
        raise ConfigError([Problem(("algo",), f"is {config.algo!r}, but this trains {algo!r}")])
    return train(config, callbacks=callbacks, dataset=dataset)


def __getattr__(name: str) -> Callable[..., Any]:
    if name.startswith("train_"):
        algo = name.removeprefix("train_")
        if algo in {spec.name for spec in list_algorithm_specs()}:
            return partial(_train_algorithm, algo)
    raise AttributeError(f"module 'rl_training.runtime' has no attribute {name!r}")
