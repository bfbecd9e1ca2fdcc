"""Experiments: several seeds of a configuration, and names that users import from here.

Names are looked up when they are first used, so that reading run directories costs no torch import.

- `manager`   `ExperimentManager`: several seeds and their summary
- `registry`  algorithms by name
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rl_training.config.packaged import packaged_configs
    from rl_training.experiment.manager import ExperimentManager
    from rl_training.experiment.registry import (
        AlgorithmSpec,
        get_algorithm_spec,
        list_algorithm_specs,
        load_plugin,
        register_algorithm,
    )
    from rl_training.runs.reading import RunReport, read_run
    from rl_training.runtime.config.files import load_config
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
_MODULES = {
    "AlgorithmSpec": "rl_training.experiment.registry",
    "ExperimentManager": "rl_training.experiment.manager",
    "RunReport": "rl_training.runs.reading",
    "TrainConfig": "rl_training.runtime.config.train_config",
    "get_algorithm_spec": "rl_training.experiment.registry",
    "list_algorithm_specs": "rl_training.experiment.registry",
    "load_config": "rl_training.runtime.config.files",
    "load_plugin": "rl_training.experiment.registry",
    "packaged_configs": "rl_training.config.packaged",
    "read_run": "rl_training.runs.reading",
    "register_algorithm": "rl_training.experiment.registry",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
