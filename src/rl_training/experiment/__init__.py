"""Experiments: configurations, several seeds, the registry of algorithms."""

from rl_training.experiment.configs import load_config, packaged_configs
from rl_training.experiment.manager import ExperimentManager
from rl_training.experiment.registry import (
    AlgorithmSpec,
    get_algorithm_spec,
    list_algorithm_specs,
    load_plugin,
    register_algorithm,
)
from rl_training.runtime.train_config import TrainConfig

__all__ = [
    "AlgorithmSpec",
    "ExperimentManager",
    "TrainConfig",
    "get_algorithm_spec",
    "list_algorithm_specs",
    "load_config",
    "load_plugin",
    "packaged_configs",
    "register_algorithm",
]
