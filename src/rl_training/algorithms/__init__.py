"""Learners and their losses. Every public name of an algorithm file is importable from here."""

from __future__ import annotations

from typing import Any

from rl_training.algorithms.base import (
    ActorCriticConfig,
    Algorithm,
    AlgorithmConfig,
    Noise,
    Terms,
    TrainingState,
    target_of,
)
from rl_training.algorithms.registry import (
    AlgorithmSpec,
    get_algorithm_spec,
    list_algorithm_specs,
    load_plugin,
    register,
)

__all__ = [
    "ActorCriticConfig",
    "Algorithm",
    "AlgorithmConfig",
    "AlgorithmSpec",
    "Noise",
    "Terms",
    "TrainingState",
    "get_algorithm_spec",
    "list_algorithm_specs",
    "load_plugin",
    "register",
    "target_of",
]


def _owns(spec: AlgorithmSpec, name: str) -> bool:
    return name in (spec.class_name, spec.algorithm.__name__, spec.config.__name__) or (
        name.startswith(f"{spec.name}_") and name.endswith("_loss")
    )


def __getattr__(name: str) -> Any:
    import sys

    if name.startswith("__"):
        raise AttributeError(name)
    for spec in list_algorithm_specs():
        module = sys.modules[spec.algorithm.__module__]
        if _owns(spec, name) and hasattr(module, name):
            return getattr(module, name)
    raise AttributeError(f"module 'rl_training.algorithms' has no attribute {name!r}")
