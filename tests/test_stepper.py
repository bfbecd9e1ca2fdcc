"""The default stepper: its optimizer step is torch's own bit for bit, and it keeps nothing."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch
from torch import nn

from rl_training.algorithms.bc import BC, BCConfig
from rl_training.algorithms.stepping import FusedAdam
from rl_training.data.transitions.batch import Batch
from rl_training.spec import ProblemSpec

SPEC = ProblemSpec(3, "continuous", 2, (-1.0, -1.0), (1.0, 1.0))


class PlainAdamBC(BC):
    """With an optimizer of its own."""

    def build_optimizer(self, name: str) -> torch.optim.Optimizer:
        return torch.optim.Adam(
            self.parameters_of(name), lr=self.config.network_learning_rate(name), fused=True
        )


def make_batch(seed: int) -> Batch:
    g = torch.Generator().manual_seed(seed)
    obs, actions = torch.randn(8, 3, generator=g), torch.randn(8, 2, generator=g).tanh()
    return Batch(obs, actions, torch.zeros(8), obs, torch.zeros(8))


def test_fused_adam_is_adam() -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = [(4, 3), (3,), (2, 1, 5)]
    start = [torch.randn(shape, generator=generator) for shape in shapes]
    ours, theirs = ([nn.Parameter(value.clone()) for value in start] for _ in range(2))
    fast, plain = FusedAdam(ours, 1e-2), torch.optim.Adam(theirs, lr=1e-2, fused=True)
    for step in range(20):
        if step == 10:
            fast.param_groups[0]["lr"] = plain.param_groups[0]["lr"] = 1e-3
        gradients = [torch.randn(shape, generator=generator) for shape in shapes]
        with torch.no_grad():
            fast.apply(gradients)
        for parameter, gradient in zip(theirs, gradients, strict=True):
            parameter.grad = gradient
        plain.step()
    for a, b in zip(ours, theirs, strict=True):
        assert torch.equal(a, b)
        assert fast.state[a].keys() == plain.state[b].keys()
        assert all(torch.equal(fast.state[a][key], plain.state[b][key]) for key in fast.state[a])


def test_an_algorithm_may_bring_its_own_optimizer() -> None:
    config = BCConfig(hidden_sizes=(8,))
    usual, own = BC(SPEC, config), PlainAdamBC(SPEC, config)
    for seed in range(3):
        for algorithm in (usual, own):
            algorithm.update(make_batch(seed))
    for a, b in zip(usual.parameters(), own.parameters(), strict=True):
        assert torch.equal(a, b)


def test_gradients_are_scaled_down_to_the_norm_together() -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = [(4, 3), (3,), (2, 1, 5)]
    start = [torch.randn(shape, generator=generator) for shape in shapes]
    ours, theirs = ([nn.Parameter(value.clone()) for value in start] for _ in range(2))
    fast, plain = FusedAdam(ours, 1e-2), torch.optim.Adam(theirs, lr=1e-2, fused=True)
    for size in (0.01, 1.0, 100.0):  # of which the first is small enough
        gradients = [size * torch.randn(shape, generator=generator) for shape in shapes]
        for parameter, gradient in zip(theirs, gradients, strict=True):
            parameter.grad = gradient.clone()
        torch.nn.utils.clip_grad_norm_(theirs, 0.5)
        plain.step()
        with torch.no_grad():
            fast.apply(gradients, 0.5)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)


def test_a_parameter_without_part_in_its_loss_is_named() -> None:
    class HalfBC(BC):
        losses = {
            "actor": lambda nets, batch, noise, config: {
                "actor_loss": nets.actor.net.layers[0](batch.obs).mean()
            }
        }

    algorithm = HalfBC(SPEC, BCConfig(hidden_sizes=(8,)))
    before = [value.detach().clone() for value in algorithm.parameters()]
    with pytest.raises(RuntimeError, match=r"actor_loss does not depend on .*layers\.1\.weight"):
        algorithm.update(make_batch(0))
    assert all(torch.equal(a, b) for a, b in zip(before, algorithm.parameters(), strict=True))


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        (None, "returns NoneType, not a dict"),
        ({"loss": torch.zeros(())}, "must return 'actor_loss', but returns 'loss'"),
        ({"actor_loss": torch.zeros(()), "size": 1.0}, "returns 'size' as float, not as a tensor"),
    ],
)
def test_what_a_loss_returns_is_checked(terms: Any, message: str) -> None:
    class Odd(BC):
        losses = {"actor": lambda *_: terms}

    with pytest.raises(RuntimeError, match=message):
        Odd(SPEC, BCConfig(hidden_sizes=(8,))).update(make_batch(0))


def tensors_after(algorithm: Any, updates: int) -> int:
    """How many there are in this process, with nothing collected meanwhile: a cycle shows, too."""
    batch = make_batch(3)
    gc.collect()
    gc.disable()
    try:
        for _ in range(updates):
            algorithm.update(batch)
        return sum(isinstance(value, torch.Tensor) for value in gc.get_objects())
    finally:
        gc.enable()


@pytest.mark.parametrize("width", [8, 4096])  # of which the second uses its memory again
def test_updates_keep_no_tensor(width: int) -> None:
    algorithm = BC(SPEC, BCConfig(hidden_sizes=(width, 8)))
    assert tensors_after(algorithm, 1) == tensors_after(algorithm, 50)
