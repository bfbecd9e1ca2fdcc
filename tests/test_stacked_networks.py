"""Networks of several seeds at once, against each seed's alone."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from rl_training.models import MLP, EnsembleMLP, stacked_passes
from rl_training.models.nodes import Tape
from rl_training.models.stacked import Stack, outside_vmap

SEEDS, ROWS, WIDTH = 3, 7, 4
NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "no hidden layer": lambda: MLP(WIDTH, (), 2),
    "perceptron": lambda: MLP(WIDTH, (5, 6), 3),
    "one output": lambda: MLP(WIDTH, (5, 6), 1),
    "one critic": lambda: EnsembleMLP(1, WIDTH, (5,)),
    "critics": lambda: EnsembleMLP(2, WIDTH, (5, 6)),
    "critics without hidden layer": lambda: EnsembleMLP(2, WIDTH, ()),
    "critics of choices": lambda: EnsembleMLP(3, WIDTH, (5, 6), 2),
    "normalised after": lambda: EnsembleMLP(2, WIDTH, (5, 6), layer_norm=True),
    "normalised before": lambda: EnsembleMLP(2, WIDTH, (5,), layer_norm=True, norm_first=True),
}
Loss = Callable[[nn.Module, Tensor], Tensor]


@pytest.fixture(params=[2**19, 0], ids=["together", "one by one"], autouse=True)
def _size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacked_passes, "LARGE", request.param)


@pytest.fixture(autouse=True)
def _start() -> None:
    torch.manual_seed(0)


class Both(nn.Module):
    """Two networks: the loss trains the first and goes through the second."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.trained, self.other = first, second


class Called(nn.Module):
    """A loss as a module, whose parameters can be replaced."""

    def __init__(self, networks: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.networks, self.loss = networks, loss

    def forward(self, x: Tensor) -> Tensor:
        return self.loss(self.networks, x)


def compare(make: Callable[[], Any], loss: Loss) -> None:
    """Values and gradients in `trained`, of all seeds and of each."""
    each = [make() for _ in range(SEEDS)]
    inputs = torch.randn(SEEDS, ROWS, WIDTH)
    called = Called(copy.deepcopy(each[0]), loss)
    named = [dict(Called(networks, loss).named_parameters()) for networks in each]
    stacked = {
        name: torch.stack([own[name].detach() for own in named]).requires_grad_()
        for name in named[0]
    }
    trained = [value for name, value in stacked.items() if name.startswith("networks.trained.")]
    stack, found = Stack(SEEDS), []

    def function(parameters: dict[str, Tensor], x: Tensor) -> dict[str, Tensor]:
        with Tape(trained) as tape:
            value = functional_call(called, parameters, (x,))
        values = stack.of_all(value)
        with outside_vmap():
            total = values.sum()
            with torch.no_grad():
                found.extend(tape.gradients(total))
        return {"value": value.detach()}

    values = stack.run(function, stacked, inputs)["value"]
    for seed, networks in enumerate(each):
        expected = loss(networks, inputs[seed])
        torch.testing.assert_close(values[seed], expected.detach(), rtol=1e-5, atol=1e-6)
        gradients = torch.autograd.grad(expected, list(networks.trained.parameters()))
        for all_seeds, own in zip(found, gradients, strict=True):
            torch.testing.assert_close(all_seeds[seed], own, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_in_a_network(name: str) -> None:
    def loss(networks: Any, x: Tensor) -> Tensor:
        with torch.no_grad():
            target = networks.other(x)
        return (networks.trained(x) - target).square().mean() + networks.trained(x[:3]).mean()

    compare(lambda: Both(NETWORKS[name](), NETWORKS[name]()), loss)


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_through_another_network(name: str) -> None:
    def loss(networks: Any, x: Tensor) -> Tensor:
        return networks.other(torch.tanh(networks.trained(x))).square().mean()

    compare(lambda: Both(MLP(WIDTH, (5,), WIDTH), NETWORKS[name]()), loss)


@pytest.mark.parametrize("name", [name for name in NETWORKS if "crit" in name or "norm" in name])
def test_gradients_through_one_member(name: str) -> None:
    def loss(networks: Any, x: Tensor) -> Tensor:
        with torch.no_grad():
            scale = networks.other.member(0, x).abs().mean()
        member = networks.other.members - 1
        return (networks.other.member(member, torch.tanh(networks.trained(x))) / scale).mean()

    compare(lambda: Both(MLP(WIDTH, (5,), WIDTH), NETWORKS[name]()), loss)


def test_what_is_unusual_goes_layer_by_layer() -> None:
    """A network of its own output, members that are chosen, inputs without a batch."""

    def loss(networks: Any, x: Tensor) -> Tensor:
        twice = networks.trained(networks.trained(x))
        chosen = networks.other.chosen(torch.tensor([1]), twice)
        return chosen.mean() + networks.trained(x[0]).mean()

    compare(lambda: Both(MLP(WIDTH, (5,), WIDTH), EnsembleMLP(2, WIDTH, (5,))), loss)
