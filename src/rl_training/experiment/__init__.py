"""Experiments: configurations, several seeds, reports, the registry of algorithms.

Names are looked up when they are first used, so that reading run directories costs no torch import.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rl_training.experiment.configs import load_config, packaged_configs
    from rl_training.experiment.manager import ExperimentManager
    from rl_training.experiment.registry import (
        AlgorithmSpec,
        get_algorithm_spec,
        list_algorithm_specs,
        load_plugin,
        register_algorithm,
    )
    from rl_training.runs.reading import RunReport, read_run
    from rl_training.runtime.config.train_config import TrainConfig

__all__ = [
    "AlgorithmSpec",
    "ExperimentManager",
    "RunReport",
    "TrainConfig",
    "get_algorithm_spec",
    "list_algorithm_specs",
    "load_config",
    "load_plugin",
    "packaged_configs",
    "read_run",
    "register_algorithm",
]
_MODULES = (
    "rl_training.runs.reading",
    "rl_training.experiment.registry",
    "rl_training.experiment.manager",
    "rl_training.experiment.configs",
)


def __getattr__(name: str) -> Any:
    if name in __all__:
        places = map(import_module, _MODULES)
        return next(getattr(place, name) for place in places if hasattr(place, name))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
