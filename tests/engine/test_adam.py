"""Fused Adam is torch's Adam; target networks follow by Polyak averaging."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.support.engines import assert_same_state, cloner, error_of, plain_batch
from torch import Tensor, nn

from rl_training.engine import CapturedEngine, EagerEngine, FusedAdam, polyak_average
from rl_training.engine.eager import gradient_norm

SHAPES = [(4, 3), (3,), (2, 1, 5), ()]


def parameters_of(seed: int = 0) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in SHAPES]


def gradients_of(seed: int, size: float = 1.0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(100 + seed)
    return [size * torch.randn(shape, generator=generator) for shape in SHAPES]


def plain_step(optimizer: Any, parameters: list[nn.Parameter], gradients: list[Tensor]) -> None:
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient.clone()
    optimizer.step()


def test_fused_adam_is_adam() -> None:
    ours, theirs = parameters_of(), parameters_of()
    fast, plain = FusedAdam(ours, 1e-2), torch.optim.Adam(theirs, lr=1e-2, fused=True)
    for step in range(20):
        if step == 10:  # as a schedule does
            fast.param_groups[0]["lr"] = plain.param_groups[0]["lr"] = 1e-3
        fast.apply(gradients_of(step))
        plain_step(plain, theirs, gradients_of(step))
    for a, b in zip(ours, theirs, strict=True):
        assert torch.equal(a, b)
        assert fast.state[a].keys() == plain.state[b].keys()
        assert all(torch.equal(fast.state[a][key], plain.state[b][key]) for key in fast.state[a])


def test_it_is_the_textbook_formula() -> None:
    parameter = nn.Parameter(torch.randn(5, dtype=torch.float64))
    value, mean, square = parameter.detach().clone(), torch.zeros(5), torch.zeros(5)
    optimizer = FusedAdam([parameter], 0.1)
    for step in range(1, 6):
        gradient = torch.randn(5, dtype=torch.float64)
        optimizer.apply([gradient])
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient**2
        corrected = (square / (1 - 0.999**step)).sqrt() + 1e-8
        value = value - 0.1 * mean / (1 - 0.9**step) / corrected
    torch.testing.assert_close(parameter.detach(), value, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("fused", [False, True])
def test_gradients_are_scaled_down_to_the_norm_together(given: bool, fused: bool) -> None:
    ours, theirs = parameters_of(), parameters_of()
    fast, plain = FusedAdam(ours, 1e-2), torch.optim.Adam(theirs, lr=1e-2, fused=True)
    if not fused:
        fast._adam = None
    for step, size in enumerate((0.01, 1.0, 100.0, 0.02, 3.0)):  # of which two are small enough
        gradients = gradients_of(step, size)
        for parameter, gradient in zip(theirs, gradients, strict=True):
            parameter.grad = gradient.clone()
        fast.apply(gradients, 0.5, gradient_norm(gradients) if given else None)
        torch.nn.utils.clip_grad_norm_(theirs, 0.5)
        plain.step()
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)


def test_without_the_fused_call_it_is_the_same_adam() -> None:
    ours, theirs = parameters_of(), parameters_of()
    fast, fallback = FusedAdam(ours, 1e-2), FusedAdam(theirs, 1e-2)
    fallback._adam = None
    for step in range(5):
        fast.apply(gradients_of(step))
        fallback.apply(gradients_of(step))
    assert all(map(torch.equal, ours, theirs))
    for a, b in zip(ours, theirs, strict=True):
        assert all(torch.equal(fast.state[a][key], fallback.state[b][key]) for key in fast.state[a])


def test_steps_may_alternate_with_those_of_torch() -> None:
    ours, theirs = parameters_of(), parameters_of()
    fast, plain = FusedAdam(ours, 1e-2), torch.optim.Adam(theirs, lr=1e-2, fused=True)
    for step in range(6):
        if step % 3 == 1:
            plain_step(fast, ours, gradients_of(step))
        else:
            fast.apply(gradients_of(step))
        plain_step(plain, theirs, gradients_of(step))
    assert all(map(torch.equal, ours, theirs))


def test_loaded_moments_are_used() -> None:
    first, second = parameters_of(), parameters_of()
    source, target = FusedAdam(first, 1e-2), FusedAdam(second, 1e-2)
    for step in range(3):
        source.apply(gradients_of(step))
    target.apply(gradients_of(9))
    target.load_state_dict(copy.deepcopy(source.state_dict()))
    with torch.no_grad():
        for a, b in zip(second, first, strict=True):
            a.copy_(b)
    for step in range(3, 6):
        source.apply(gradients_of(step))
        target.apply(gradients_of(step))
    assert all(map(torch.equal, first, second))


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["deep copy", "pickled"]
)
def test_a_copy_moves_parameters_of_its_own(copied: Any) -> None:
    parameters = parameters_of()
    optimizer = FusedAdam(parameters, 1e-2)
    optimizer.apply(gradients_of(0))
    before = [value.detach().clone() for value in parameters]
    other, others = copied((optimizer, parameters))
    other.apply(gradients_of(1))
    assert all(map(torch.equal, before, parameters))
    optimizer.apply(gradients_of(1))
    assert all(map(torch.equal, others, parameters))


LOSSES: dict[str, Callable[[list[nn.Parameter], Tensor], Tensor]] = {
    "one gradient for two": lambda p, x: ((p[0] + p[1]) * x * 10).sum(),
    "equal gradients": lambda p, x: (p[0] * x).sum() + (p[1] * x).sum(),
    "constants": lambda p, x: p[0].sum() + p[1].sum(),
    "expanded": lambda p, x: p[0].sum() * x.exp().sum() + p[1].mean() * x[0, 0],
    "transposed": lambda p, x: (p[0].t() @ x[:, 0]).square().sum() + (p[1] * x).square().sum(),
    "parts of one": lambda p, x: (torch.cat([p[0], p[1]]).square() * x.sum()).sum(),
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("max_norm", [None, 0.5])
@pytest.mark.parametrize("engine", [EagerEngine, CapturedEngine])
def test_gradients_may_have_any_layout(loss: str, max_norm: float | None, engine: Any) -> None:
    """Autograd shares memory between gradients, and lays them out otherwise than parameters."""
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(2, 5, 4, generator=generator)
    ours, theirs = ([nn.Parameter(value.clone()) for value in start] for _ in range(2))
    fast, plain = FusedAdam(ours, 0.1), torch.optim.Adam(theirs, lr=0.1, fused=True)
    made = engine()
    for _ in range(4):
        x = torch.randn(5, 4, generator=generator)
        result = made.gradients(
            "a", lambda i: (LOSSES[loss](ours, i["x"]), {}), ours, {"x": x},
            with_norm=max_norm is not None,
        )  # fmt: skip
        fast.apply(result.gradients, max_norm, result.norm)
        plain.zero_grad()
        LOSSES[loss](theirs, x).backward()
        if max_norm is not None:
            torch.nn.utils.clip_grad_norm_(theirs, max_norm)
        plain.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_an_algorithm_may_bring_its_own_optimizer() -> None:
    def loss(nets: Any, batch: Any, *_: Any) -> Any:
        return {"actor_loss": error_of(nets, batch)}

    def build_optimizer(self: Any, name: str) -> Any:
        rate = self.config.network_learning_rate(name)
        return torch.optim.Adam(self._parameters_of[name], lr=rate, fused=True)

    usual, own = cloner(loss), cloner(loss, build_optimizer=build_optimizer)
    for seed in range(3):
        usual.update(plain_batch(seed))
        own.update(plain_batch(seed))
    assert_same_state(usual, own)


def test_targets_follow_by_polyak_averaging() -> None:
    targets, sources = parameters_of(0), parameters_of(1)
    expected = [
        0.995 * a.detach() + 0.005 * b.detach() for a, b in zip(targets, sources, strict=True)
    ]
    polyak_average(targets, sources, 0.005)
    torch.testing.assert_close([value.detach() for value in targets], expected)
    polyak_average(targets, sources, 1.0)
    torch.testing.assert_close(targets, sources)
