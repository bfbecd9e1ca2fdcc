"""The optimizer step that the default stepper takes is torch's own, bit for bit."""

from __future__ import annotations

import torch
from torch import nn

from rl_training.algorithms.bc import BC, BCConfig
from rl_training.algorithms.stepping import FusedAdam
from rl_training.data.batch import Batch
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
        gradients = tuple(torch.randn(shape, generator=generator) for shape in shapes)
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
