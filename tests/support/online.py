"""What the tests of algorithms that collect share: small learners, batches, a look at targets."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from rl_training.algorithms import get_algorithm_spec
from rl_training.data import Batch
from rl_training.spec import ProblemSpec

SPEC = ProblemSpec(3, "continuous", 2, (-1.0, -1.0), (1.0, 1.0))
CHOICES = ProblemSpec(3, "discrete", 4)


def spec_of(name: str) -> ProblemSpec:
    return SPEC if "continuous" in get_algorithm_spec(name).action_kinds else CHOICES


def make(name: str, spec: ProblemSpec | None = None, **options: Any) -> Any:
    entry = get_algorithm_spec(name)
    if name == "tqc":
        options = {"critic_hidden_sizes": (8, 8), "num_quantiles": 5, **options}
    config = entry.config(hidden_sizes=(8, 8), **options)
    return entry.algorithm(spec or spec_of(name), config, seed=1)


def random_batch(spec: ProblemSpec = SPEC, rows: int = 16, seed: int = 0, **fields: Any) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    obs, next_obs = torch.randn(2, rows, spec.obs_dim, generator=generator)
    actions = 2 * torch.rand(rows, spec.action_dim, generator=generator) - 1
    if spec.action_kind == "discrete":
        actions = actions.argmax(-1)
    rewards = torch.randn(rows, generator=generator)
    ends = (torch.arange(rows) % 4 == 0).float()
    return Batch(obs, actions, rewards, next_obs, ends, **fields)


def reference_batch(rewards: list[float], terminations: list[float], **fields: Any) -> Batch:
    """Rows of which only rewards and ends count: the networks are stand-ins."""
    rows = len(rewards)
    blank = torch.zeros(rows, 1)
    return Batch(blank, blank, torch.tensor(rewards), blank, torch.tensor(terminations), **fields)


def policy_with(log_probs: list[float]) -> Any:
    """A stand-in for a stochastic policy: draws these log-densities, with the noise as actions."""
    return SimpleNamespace(draw=lambda obs, noise: (noise, torch.tensor(log_probs)))


def target_of_update(name: str, nets: Any, batch: Batch, noise: Any, config: Any) -> Tensor:
    """What the critics of an algorithm regress for this batch."""
    module = sys.modules[get_algorithm_spec(name).algorithm.__module__]
    half, seen = f"{name}_critic_loss", []
    original = getattr(module, half)

    def spy(**tensors: Any) -> Any:
        seen.append(tensors["target_quantiles" if name == "tqc" else "target_q"])
        return original(**tensors)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, half, spy)
        module.critic_loss(nets, batch, noise, config)  # type: ignore[attr-defined]
    (target,) = seen
    assert not target.requires_grad
    return target


def moved(before: dict[str, Tensor], algorithm: Any) -> set[str]:
    """Networks of which a parameter is not what it was."""
    after = algorithm.state_dict()
    return {key.split(".")[0] for key in before if not torch.equal(before[key], after[key])}


def snapshot(algorithm: Any) -> dict[str, Tensor]:
    return {key: value.clone() for key, value in algorithm.state_dict().items()}
