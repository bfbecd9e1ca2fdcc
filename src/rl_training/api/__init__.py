"""What users import: a managed class for every registered algorithm, and functions.

`rl_training.api.TD3BC` and the like are made from the registry when they are first asked for.
"""

from __future__ import annotations

from typing import Any

from rl_training.algorithms.registry import get_algorithm_spec, list_algorithm_specs
from rl_training.api.algorithms import ManagedAlgorithm, managed_class
from rl_training.experiment import load_config
from rl_training.runtime import TrainConfig, TrainResult, resume, train
from rl_training.runtime import evaluate_checkpoint as evaluate
from rl_training.runtime import predict_checkpoint as predict

__all__ = [
    "ManagedAlgorithm",
    "TrainConfig",
    "TrainResult",
    "algorithm",
    "evaluate",
    "load_config",
    "predict",
    "resume",
    "train",
]


def algorithm(name: str) -> type[ManagedAlgorithm]:
    """The managed class of an algorithm by its registered name."""
    return managed_class(get_algorithm_spec(name))


def __getattr__(name: str) -> Any:
    if not name.startswith("_"):
        for spec in list_algorithm_specs():
            if spec.class_name == name:
                return managed_class(spec)
    raise AttributeError(f"module 'rl_training.api' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *(spec.class_name for spec in list_algorithm_specs())})
