"""Networks as one node of autograd against the same networks layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from rl_training.models import MLP, EnsembleMLP, nodes

CLOSE = {"rtol": 1e-6, "atol": 1e-6}


@contextmanager
def node(*, used: bool, chunk: int = nodes.CHUNK) -> Iterator[None]:
    """The node at every size, in chunks of so many rows, or nowhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nodes, "LARGE", 0 if used else float("inf"))
        patch.setattr(nodes, "CHUNK", chunk)
        yield


@pytest.fixture
def everywhere() -> Iterator[None]:
    with node(used=True):
        yield


def name_of_node(values: Tensor) -> str:
    return "" if values.grad_fn is None else values.grad_fn.name()


@st.composite
def networks(draw: Callable[..., Any]) -> tuple[nn.Module, int]:
    """A network with parameters that are all different, and its input width."""
    in_dim, out_dim = draw(st.integers(1, 9)), draw(st.sampled_from([1, 1, 2, 5]))
    hidden = draw(st.lists(st.integers(1, 12), max_size=3))
    torch.manual_seed(draw(st.integers(0, 2**16)))
    network: nn.Module
    if draw(st.booleans()):
        network = MLP(in_dim, hidden, out_dim)
    else:
        network = EnsembleMLP(
            draw(st.integers(1, 11)),
            in_dim,
            hidden,
            out_dim,
            layer_norm=draw(st.booleans()),
            norm_first=draw(st.booleans()),
        )
        for parameter in (*network.scales, *network.shifts):
            parameter.data.add_(0.3 * torch.randn_like(parameter))
    return network, in_dim


def relative_error(found: Tensor, expected: Tensor) -> float:
    """The largest, in parts of the largest entry."""
    if not expected.numel():
        return 0.0
    found, expected = found.detach(), expected.detach()
    return float((found - expected).abs().max() / expected.abs().max().clamp_min(1e-3))


@settings(max_examples=150, deadline=None)
@given(
    networks(),
    st.integers(0, 40),
    st.sampled_from([7, 16, 512]),
    st.sampled_from(["leaf", "relayed", "given"]),
    st.booleans(),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_values_and_gradients_are_those_of_the_layers(
    made: tuple[nn.Module, int],
    rows: int,
    chunk: int,
    source: str,
    trains: bool,
    dtype: torch.dtype,
) -> None:
    network, in_dim = made[0].to(dtype), made[1]
    start = torch.randn(rows, in_dim, requires_grad=source != "given", dtype=dtype)
    wanted = [start] * (source != "given") + list(network.parameters()) * trains
    results, slopes = [], None
    for used in (True, False):
        with node(used=used, chunk=chunk):
            values = network(start * 1 if source == "relayed" else start)
            assert (name_of_node(values) == "_NodeBackward") == used
            slopes = torch.randn_like(values) if slopes is None else slopes
            found = torch.autograd.grad(values, wanted, slopes) if wanted else ()
        results.append([values, *found])
    for ours, plain in zip(*results, strict=True):
        assert ours.shape == plain.shape
        assert relative_error(ours, plain) < (1e-5 if dtype == torch.float32 else 1e-12)
    with torch.no_grad(), node(used=True, chunk=chunk):
        assert torch.equal(network(start), results[0][0])


@pytest.mark.parametrize(
    "norm", [{}, {"layer_norm": True}, {"layer_norm": True, "norm_first": True}]
)
@pytest.mark.parametrize("out_dim", [1, 3])
def test_gradients_of_training_size_are_exact_to_rounding(
    norm: dict[str, bool], out_dim: int
) -> None:
    """Beside the layers in float64: in float32 these themselves are off by up to 1.2e-6."""
    torch.manual_seed(0)
    network, x = EnsembleMLP(3, 23, (64, 64, 64), out_dim, **norm), torch.randn(1100, 23)
    with node(used=True):
        found = torch.autograd.grad(network(x).square().mean(), network.parameters())
    network.double()
    with node(used=False):
        exact = torch.autograd.grad(network(x.double()).square().mean(), network.parameters())
    for ours, expected in zip(found, exact, strict=True):
        assert relative_error(ours, expected) < 1e-6


def test_several_passes_may_await_their_gradients(everywhere: None) -> None:
    torch.manual_seed(0)
    network, x = EnsembleMLP(2, 4, (8, 8)), torch.randn(2, 6, 4)
    parameters = list(network.parameters())
    apart = [torch.autograd.grad(network(part).sum(), parameters) for part in x]
    first, second = network(x[0]), network(x[1])
    late = torch.autograd.grad(first.sum(), parameters, retain_graph=True)
    again = torch.autograd.grad(first.sum(), parameters)
    other = torch.autograd.grad(second.sum(), parameters)
    for expected, found in ((apart[0], late), (apart[0], again), (apart[1], other)):
        assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(second.sum(), parameters)


def test_a_weight_changed_before_its_gradient_is_noticed(everywhere: None) -> None:
    network = EnsembleMLP(2, 4, (8,))
    loss = network(torch.randn(6, 4)).sum()
    with torch.no_grad():
        network.weights[1].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("asks", ["grad", "backward"])
def test_a_relaying_network_computes_no_weight_gradient(
    asks: str, everywhere: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, source = EnsembleMLP(2, 4, (8, 8)), torch.randn(6, 4, requires_grad=True)
    computed = []
    original = nodes._Backward._add_layer
    monkeypatch.setattr(
        nodes._Backward, "_add_layer", lambda *a: (computed.append(a), original(*a))
    )

    def differentiate(*inputs: Tensor) -> None:
        values = network(source * 2).sum()
        if asks == "grad":
            torch.autograd.grad(values, inputs)
        else:
            values.backward(inputs=inputs)

    differentiate(source)
    assert not computed
    differentiate(source, network.weights[0])
    assert len(computed) == 3
    differentiate(network.biases[2])
    assert len(computed) == 6


def test_backward_fills_every_gradient(everywhere: None) -> None:
    network, x = EnsembleMLP(2, 4, (8,)), torch.randn(6, 4, requires_grad=True)
    network(x).sum().backward()
    assert all(value.grad is not None for value in (x, *network.parameters()))
    frozen = EnsembleMLP(2, 4, (8,)).requires_grad_(False)
    assert not frozen(x.detach()).requires_grad
    frozen(x).sum().backward()
    assert all(value.grad is None for value in frozen.parameters())


def test_second_derivatives_are_those_of_the_layers() -> None:
    torch.manual_seed(0)
    network, found = EnsembleMLP(2, 4, (8, 8), layer_norm=True), []
    x = torch.randn(6, 4, requires_grad=True)
    for used in (True, False):
        with node(used=used):
            values = network(x).square().sum()
        (slope,) = torch.autograd.grad(values, x, create_graph=True)
        penalty = (slope.norm(dim=-1) - 1).square().sum()
        found.append(torch.autograd.grad(penalty, [x, *network.parameters()][:-1]))
    for ours, plain in zip(*found, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-5, atol=1e-6)


def test_what_the_node_cannot_do_goes_layer_by_layer(everywhere: None) -> None:
    network, x = EnsembleMLP(2, 4, (8,)), torch.randn(6, 4)
    expected = network(x)
    assert name_of_node(expected) == "_NodeBackward"

    with torch.autocast("cpu", torch.bfloat16):
        assert name_of_node(network(x)) != "_NodeBackward"
    half = EnsembleMLP(2, 4, (8,)).bfloat16()
    assert name_of_node(half(x.bfloat16())) != "_NodeBackward"
    rows = torch.func.vmap(lambda row: network(row.unsqueeze(0)).squeeze(1), out_dims=1)(x)
    torch.testing.assert_close(rows, expected, **CLOSE)
    slopes = torch.func.grad(lambda inputs: network(inputs).sum())(x)
    leaf = x.clone().requires_grad_()
    torch.testing.assert_close(slopes, torch.autograd.grad(network(leaf).sum(), leaf)[0], **CLOSE)
    _, tangent = torch.func.jvp(network, (x,), (torch.ones_like(x),))
    with torch.autograd.forward_ad.dual_level():
        dual = network(torch.autograd.forward_ad.make_dual(x, torch.ones_like(x)))
        direct = torch.autograd.forward_ad.unpack_dual(dual).tangent
    torch.testing.assert_close(direct, tangent, **CLOSE)


def test_small_networks_go_layer_by_layer() -> None:
    """Where the overhead of a backward pass in Python is more than it gains."""
    assert name_of_node(EnsembleMLP(2, 4, (64, 64))(torch.randn(256, 4))) != "_NodeBackward"
    assert name_of_node(EnsembleMLP(10, 4, (256,))(torch.randn(256, 4))) == "_NodeBackward"
