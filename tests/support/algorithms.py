"""Small learners of every registered algorithm, batches for them, and how each gets its data."""

from __future__ import annotations

from typing import Any

import torch

from rl_training.algorithms import get_algorithm_spec
from rl_training.data import Batch, TransitionDataset
from rl_training.spec import ProblemSpec

SPECS = {
    "continuous": ProblemSpec(3, "continuous", 2, (-1.0, -1.0), (1.0, 1.0)),
    "discrete": ProblemSpec(3, "discrete", 4),
}


def collects(algo: str) -> bool:
    """Tell an algorithm that learns only from what it collects."""
    return get_algorithm_spec(algo).regimes == ("online",)


def starts_from_logs(algo: str) -> bool:
    """Tell an algorithm that always goes from logged data to collecting."""
    return get_algorithm_spec(algo).regimes == ("offline_to_online",)


def own_env(algo: str) -> str:
    """Return the id of an environment that the algorithm can be trained in."""
    if get_algorithm_spec(algo).algorithm.replay().her:
        return "RL-PointGoal-v0"
    kinds = get_algorithm_spec(algo).action_kinds
    return "Pendulum-v1" if "continuous" in kinds else "CartPole-v1"


def make(name: str, kind: str = "", **options: Any) -> Any:
    spec = get_algorithm_spec(name)
    kind = kind or spec.action_kinds[0]
    return spec.algorithm(SPECS[kind], spec.config(hidden_sizes=(8, 8), **options), seed=3)


def batch_of(dataset: TransitionDataset, size: int = 32, seed: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    return dataset.with_next_actions().sample(size, generator=generator)
