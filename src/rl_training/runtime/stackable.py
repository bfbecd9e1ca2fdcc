"""Whether the seeds of an algorithm can be stacked: it is tried, before anything is written."""

from __future__ import annotations

from typing import Any

import torch

from rl_training.algorithms.base import Algorithm
from rl_training.algorithms.stepping import FusedAdam, Terms
from rl_training.config import ConfigError
from rl_training.data.batch import Batch
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.runtime.experience import Offline, StackedOffline
from rl_training.runtime.stacking import SeedStack

ROWS = 8  # of a trial batch
MOST = 100  # trial updates; by then every network should have been trained once


def refuse_unstackable(algorithm: Algorithm[Any], dataset: TransitionDataset) -> None:
    why = _reason(algorithm, dataset)
    if why is not None:
        raise ConfigError(f"{algorithm.name} cannot be stacked: {why}; train it without --stack")


def _reason(algorithm: Algorithm[Any], dataset: TransitionDataset) -> str | None:
    for network, optimizer in algorithm.optimizers.items():
        if not isinstance(optimizer, FusedAdam) or len(optimizer.param_groups) > 1:
            return f"its {network} has an optimizer of its own"
    for name, _ in algorithm.named_buffers():
        return f"it keeps {name}, which no optimizer moves"
    alone, together = ([_with_seed(algorithm, seed) for seed in (0, 1)] for _ in range(2))
    stack = SeedStack(together)
    batches = StackedOffline(
        [Offline(dataset, ROWS, seed=seed, device=algorithm.device) for seed in (0, 1)]
    )
    untrained = {f"{network}_loss" for network in algorithm.losses}
    for _ in range(MOST):
        rows, returns = batches.draw()
        expected = [
            each.update(
                Batch.from_rows(
                    rows[seed], batches.layout, returns=None if returns is None else returns[seed]
                )
            )
            for seed, each in enumerate(alone)
        ]
        try:
            found = stack.update(batches.layout, rows, returns)
        except Exception as error:  # of whatever kind: vmap has many words for what it cannot do
            return str(error).strip().splitlines()[0]
        for own, other in zip(expected, found, strict=True):
            different = _first_difference(own, other)
            if different is not None:
                return f"{different} is not what it is for one seed alone"
        untrained -= set(found[0])
        if not untrained:
            return None
    return f"{sorted(untrained)[0]} is not among the first {MOST} updates"


def _with_seed(algorithm: Algorithm[Any], seed: int) -> Algorithm[Any]:
    return type(algorithm)(
        algorithm.spec, algorithm.config, seed=seed, update_seed=seed, device=algorithm.device
    )


def _first_difference(expected: Terms, found: Terms) -> str | None:
    if expected.keys() != found.keys():
        return "what it reports"
    for name, value in expected.items():
        if not torch.allclose(value, found[name], rtol=1e-3, atol=1e-4, equal_nan=True):
            return name
    return None
