"""Algorithm registry, under the names that users import."""

from rl_training.algorithms.registry import (
    AlgorithmSpec,
    get_algorithm_spec,
    list_algorithm_specs,
    load_plugin,
)
from rl_training.algorithms.registry import register as register_algorithm

__all__ = [
    "AlgorithmSpec",
    "get_algorithm_spec",
    "list_algorithm_specs",
    "load_plugin",
    "register_algorithm",
]
