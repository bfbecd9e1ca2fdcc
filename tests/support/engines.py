"""Learners with a captured or an eager engine, side by side on the same batches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from rl_training.algorithms import get_algorithm_spec, list_algorithm_specs
from rl_training.algorithms.bc import BC, BCConfig
from rl_training.data import TransitionDataset
from rl_training.data.transitions.batch import Batch
from rl_training.engine import CapturedEngine
from rl_training.spec import ProblemSpec
from tests.support.algorithms import batch_of
from tests.support.data import make_fields

KINDS = [(spec.name, kind) for spec in list_algorithm_specs() for kind in spec.action_kinds]


def problem(kind: str, obs_dim: int = 3, action_dim: int = 2) -> ProblemSpec:
    if kind == "discrete":
        return ProblemSpec(obs_dim, "discrete", action_dim)
    return ProblemSpec(obs_dim, "continuous", action_dim, (-1.0,) * action_dim, (1.0,) * action_dim)


def data_of(kind: str, obs_dim: int = 3, action_dim: int = 2) -> TransitionDataset:
    fields = make_fields(obs_dim=obs_dim, action_dim=action_dim)
    if kind == "discrete":
        fields["actions"] = torch.arange(400).remainder(action_dim).numpy()
    return TransitionDataset.from_dict(fields)


def learner(
    name: str,
    kind: str,
    *,
    engine: Any = None,
    obs_dim: int = 3,
    action_dim: int = 2,
    **options: Any,
) -> Any:
    """A small learner; eager unless an engine is given."""
    spec = get_algorithm_spec(name)
    config = spec.config(**{"hidden_sizes": (8, 8), "batch_size": 32, **options})
    algorithm = spec.algorithm(problem(kind, obs_dim, action_dim), config, seed=3)
    if engine is not None:
        algorithm.engine = engine
    return algorithm


def batches_of(
    dataset: TransitionDataset, count: int, size: int = 32, first: int = 0
) -> list[Batch]:
    return [batch_of(dataset, size, seed) for seed in range(first, first + count)]


def assert_close_updates(
    eager: Any, captured: Any, batches: Iterable[Batch], rtol: float = 1e-3, atol: float = 1e-5
) -> None:
    """Both make the same updates, up to rounding that Adam amplifies."""
    for batch in batches:
        expected, found = eager.update(batch), captured.update(batch)
        assert list(expected) == list(found)
        for name in expected:
            torch.testing.assert_close(found[name], expected[name], rtol=rtol, atol=atol * 10)
    for ours, plain in zip(captured.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(ours, plain, rtol=rtol, atol=atol)


def assert_all_captured(algorithm: Any) -> None:
    assert isinstance(algorithm.engine, CapturedEngine)
    assert algorithm.engine.eager == set()
    assert set(algorithm.losses) <= set(algorithm.engine._latest)


def tensors_of(algorithm: Any) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in algorithm.training_state().tensors.items()}


def assert_same_state(first: Any, second: Any) -> None:
    """Compare networks, moments and random streams bit for bit."""
    ours, theirs = first.training_state(), second.training_state()
    assert ours.values == theirs.values
    assert ours.tensors.keys() == theirs.tensors.keys()
    for name in ours.tensors:
        assert torch.equal(ours.tensors[name], theirs.tensors[name]), name


# -- behaviour cloning with a loss of one's own -----------------------------------------------------

SPEC = problem("continuous")


def cloner(loss: Any, engine: Any = None, config: Any = None, **members: Any) -> Any:
    """A behaviour cloner that minimises `loss(nets, batch, noise, config)`."""
    made = type("Cloner", (BC,), {"losses": {"actor": loss}, **members})
    algorithm = made(SPEC, config or BCConfig(hidden_sizes=(8,)))
    if engine is not None:
        algorithm.engine = engine
    return algorithm


def error_of(nets: Any, batch: Any) -> Tensor:
    """Mean squared error of the actor, as behaviour cloning minimises it."""
    return (nets.actor(batch.obs) - batch.actions).square().mean()


def plain_batch(seed: int, rows: int = 8) -> Batch:
    g = torch.Generator().manual_seed(seed)
    obs, actions = torch.randn(rows, 3, generator=g), torch.randn(rows, 2, generator=g).tanh()
    return Batch(obs, actions, torch.randn(rows, generator=g), obs.clone(), torch.zeros(rows))
