"""Networks by hand, and losses on a tape, against the same networks layer by layer."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from rl_training.models import MLP, DuelingMLP, EnsembleMLP, nodes, passes, pool, samples
from rl_training.models.nodes import Tape
from rl_training.models.pool import POOL

CLOSE = {"rtol": 1e-6, "atol": 1e-6}


@contextmanager
def chunks_of(rows: int, alone: bool = False) -> Iterator[None]:
    """Networks of any size go as large ones do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passes, "SMALL", 0)
        patch.setattr(pool, "SMALL", 0)
        patch.setattr(passes, "LARGE", 0)
        patch.setattr(passes, "CHUNK", rows)
        for least in ("ALONE", "ALONE_IF_NORMALISED"):
            patch.setattr(passes, least, 1 if alone else 2**62)
        yield


def name_of_node(values: Tensor) -> str:
    return "" if values.grad_fn is None else values.grad_fn.name()


@torch.no_grad()
def gradients_of(tape: Tape, loss: Tensor) -> list[Tensor | None]:
    return tape.gradients(loss)


def on_tape(
    network: nn.Module, loss: Callable[[], Tensor], others: list[Tensor] | None = None
) -> list[Tensor | None]:
    """Gradients in the network's parameters and in further tensors."""
    with Tape([*network.parameters(), *(others or [])]) as tape:
        value = loss()
    return gradients_of(tape, value)


def plainly(network: nn.Module, loss: Callable[[], Tensor]) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss(), list(network.parameters()), allow_unused=True)


def assert_same(found: Any, expected: Any, **tolerance: float) -> None:
    for ours, plain in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, plain, **(tolerance or CLOSE))


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


@settings(max_examples=200, deadline=None)
@given(
    networks(),
    st.integers(0, 40),
    st.sampled_from([0, 7, 16, 512]),
    st.booleans(),
    st.sampled_from(["trained", "relaying", "member"]),
)
def test_values_and_gradients_are_those_of_the_layers(
    made: tuple[nn.Module, int], rows: int, chunk: int, alone: bool, role: str
) -> None:
    # Sums that cancel and narrow normalised layers amplify rounding, that of the layers themselves
    # as well, so float32 is judged by the size of networks that are trained.
    network, in_dim, dtype = made[0].double(), made[1], torch.float64
    evaluate: Callable[[Tensor], Tensor] = network
    if role == "member":
        assume(isinstance(network, EnsembleMLP) and rows)  # torch's addmv wants rows
        evaluate = lambda x: network.member(network.members - 1, x)  # noqa: E731
    trained = role == "trained"
    start = torch.randn(rows, in_dim, requires_grad=not trained, dtype=dtype)
    wanted = list(network.parameters()) if trained else [start]
    x = start if trained else start * 1
    plain_values = evaluate(x)
    assert name_of_node(plain_values) != "_RelayBackward"
    slopes = torch.randn_like(plain_values)
    expected = torch.autograd.grad(plain_values, wanted, slopes)
    with chunks_of(chunk, alone) if chunk else nullcontext():
        with Tape(wanted) as tape:
            values = evaluate(start if trained else start * 1)
            loss = (values * slopes).sum()
        assert values.is_leaf == trained
        found = gradients_of(tape, loss)
        if role != "member":
            with torch.no_grad():
                assert torch.equal(network(start), values)
    for ours, plain in zip([values, *found], [plain_values, *expected], strict=True):
        assert ours is not None
        assert ours.shape == plain.shape
        assert relative_error(ours, plain) < 1e-8


@pytest.mark.parametrize(
    "norm", [{}, {"layer_norm": True}, {"layer_norm": True, "norm_first": True}]
)
@pytest.mark.parametrize("out_dim", [1, 3])
@pytest.mark.parametrize("alone", [False, True])
def test_gradients_of_training_size_are_exact_to_rounding(
    norm: dict[str, bool], out_dim: int, alone: bool
) -> None:
    """Beside the layers in float64: in float32 these themselves are off by up to 1.2e-6."""
    torch.manual_seed(0)
    network, x = EnsembleMLP(3, 23, (64, 64, 64), out_dim, **norm), torch.randn(1100, 23)
    with chunks_of(512, alone):
        found = on_tape(network, lambda: network(x).square().mean())
    layers = plainly(network, lambda: network(x).square().mean())
    network.double()
    exact = plainly(network, lambda: network(x.double()).square().mean())
    for ours, plain, expected in zip(found, layers, exact, strict=True):
        assert ours is not None
        assert relative_error(ours, expected) < max(1e-6, 1.1 * relative_error(plain, expected))


def test_evaluations_add_up_whatever_way_they_go() -> None:
    torch.manual_seed(0)
    network, x = EnsembleMLP(2, 4, (8, 8)), torch.randn(3, 6, 4)
    source = torch.randn(6, 4, requires_grad=True)
    chosen = torch.tensor([1])

    def loss() -> Tensor:
        on_the_tape = network(x[0]).sum() * network(x[1]).square().mean()
        by_layers = network(source * 2).mean() + network.chosen(chosen, x[0]).square().sum()
        decay = sum(value.square().sum() for value in network.parameters())
        return on_the_tape + by_layers + network.member(0, x[2]).sum() + decay

    assert_same(on_tape(network, loss), plainly(network, loss), rtol=1e-5, atol=1e-5)


def test_only_what_the_loss_uses_has_a_gradient() -> None:
    network, other, x = MLP(4, (8,), 2), MLP(4, (8,), 2), torch.randn(6, 4)
    found = on_tape(network, lambda: network(x).sum(), [*other.parameters()])
    assert [value is None for value in found] == [False] * 4 + [True] * 4
    found = on_tape(network, lambda: (network(x), other.layers[0].weight.sum())[1], [])
    assert found == [None] * 4
    with pytest.raises(RuntimeError, match="does not require grad"):
        on_tape(network, lambda: other(x).sum())
    with pytest.raises(RuntimeError, match=r"one number, but this has shape \(6,\)"):
        on_tape(network, lambda: network(x).sum(1))


def test_two_streams_over_shared_layers() -> None:
    torch.manual_seed(0)
    network, x = DuelingMLP(4, (8, 8), 3), torch.randn(6, 4)

    def loss() -> Tensor:
        return network(x).square().mean()

    assert_same(on_tape(network, loss), plainly(network, loss))


def test_a_network_that_is_not_trained_only_relays() -> None:
    torch.manual_seed(0)
    actor, critic = MLP(3, (8,), 2), EnsembleMLP(2, 5, (8, 8))
    obs = torch.randn(6, 3)

    def loss() -> Tensor:
        return critic(torch.cat([obs, actor(obs).tanh()], 1)).amin(0).mean()

    with Tape(list(actor.parameters())) as tape:
        assert not critic(torch.randn(6, 5)).requires_grad
        value = loss()
    with torch.no_grad():
        for parameter in critic.parameters():
            parameter.grad = None
    assert_same(gradients_of(tape, value), plainly(actor, loss))
    assert all(parameter.grad is None for parameter in critic.parameters())


def test_an_input_changed_before_the_gradient_is_noticed() -> None:
    network, x = EnsembleMLP(2, 4, (8,)), torch.randn(6, 4)
    with Tape(list(network.parameters())) as tape:
        loss = network(x).sum()
    x.add_(1)
    with pytest.raises(RuntimeError, match="changed in place"):
        gradients_of(tape, loss)


@pytest.mark.parametrize("trained", ["network", "factor"])
def test_a_loss_may_hold_a_derivative(trained: str) -> None:
    """Such as the norm of the gradient in the inputs."""
    torch.manual_seed(0)
    network, x = EnsembleMLP(2, 4, (8, 8), layer_norm=True), torch.randn(6, 4, requires_grad=True)
    factor = nn.Linear(4, 4)
    module = network if trained == "network" else factor

    def loss() -> Tensor:
        inputs = factor(x)
        (slope,) = torch.autograd.grad(network(inputs).square().sum(), inputs, create_graph=True)
        return (slope.norm(dim=-1) - 1).square().sum() + network(inputs).mean()

    assert_same(on_tape(module, loss), plainly(module, loss), rtol=1e-5, atol=1e-5)


def test_no_tape_records_after_a_loss_failed() -> None:
    network, x = MLP(4, (8,), 2), torch.randn(6, 4)
    with pytest.raises(ZeroDivisionError), Tape(list(network.parameters())):
        _ = 1 / 0
    assert not network(x).is_leaf
    network(x).sum().backward()
    assert all(value.grad is not None for value in network.parameters())


def test_copies_and_borrowed_parameters_are_told_apart() -> None:
    torch.manual_seed(0)
    network, x = MLP(4, (8,), 2), torch.randn(6, 4)
    twin = copy.deepcopy(network)
    with Tape(list(network.parameters())):
        assert not twin(x).requires_grad
    with torch.no_grad():
        twin.layers[0].weight.zero_()
        assert not torch.equal(twin(x), network(x))
    borrowed = {name: value * 2 for name, value in network.named_parameters()}
    called = torch.func.functional_call(network, borrowed, (x,))

    def loss() -> Tensor:
        made = {name: value * 2 for name, value in network.named_parameters()}
        return torch.func.functional_call(network, made, (x,)).square().sum()

    assert not torch.equal(called, network(x))
    assert_same(on_tape(network, loss), plainly(network, loss), rtol=1e-5, atol=1e-5)


def test_what_cannot_go_by_hand_goes_layer_by_layer() -> None:
    network, x = EnsembleMLP(2, 4, (8,)), torch.randn(6, 4)
    expected = network(x)
    leaf = x.clone().requires_grad_()
    (slopes_expected,) = torch.autograd.grad(network(leaf).sum(), leaf)
    half = EnsembleMLP(2, 4, (8,)).bfloat16()
    with Tape([*network.parameters(), *half.parameters()]):
        assert network(x).is_leaf
        with torch.autocast("cpu", torch.bfloat16):
            assert not network(x).is_leaf
        assert not half(x.bfloat16()).is_leaf
        rows = torch.func.vmap(lambda row: network(row.unsqueeze(0)).squeeze(1), out_dims=1)(x)
        slopes = torch.func.grad(lambda inputs: network(inputs).sum())(x)
        _, tangent = torch.func.jvp(network, (x,), (torch.ones_like(x),))
        with torch.autograd.forward_ad.dual_level():
            dual = network(torch.autograd.forward_ad.make_dual(x, torch.ones_like(x)))
            direct = torch.autograd.forward_ad.unpack_dual(dual).tangent
    torch.testing.assert_close(rows, expected, **CLOSE)
    torch.testing.assert_close(slopes, slopes_expected, **CLOSE)
    torch.testing.assert_close(direct, tangent, **CLOSE)


@pytest.mark.parametrize("alone", [False, True])
def test_memory_is_used_again_but_never_while_something_holds_it(alone: bool) -> None:
    torch.manual_seed(0)
    network, x = EnsembleMLP(2, 4, (8, 8), layer_norm=True), torch.randn(3, 20, 4)

    def loss() -> Tensor:
        with torch.no_grad():
            network(x[2])
        return network(x[0]).square().mean() + network(x[1]).abs().mean()

    expected = plainly(network, loss)
    with chunks_of(7, alone):
        held = on_tape(network, loss)
        for _ in range(3):  # these hold nothing back, and the first must not feel it
            with Tape(list(network.parameters())) as tape:
                value = loss()
            assert_same(gradients_of(tape, value), expected, rtol=1e-5, atol=1e-6)
            POOL.give(*tape.from_pool)
    assert_same(held, expected, rtol=1e-5, atol=1e-6)


def test_going_back_twice_through_a_relay_is_refused() -> None:
    critic, actions = EnsembleMLP(2, 4, (8,)), torch.randn(6, 4, requires_grad=True)
    with Tape([actions]):
        loss = critic(actions * 1).sum()
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="once"):
        loss.backward()


@pytest.mark.parametrize("constant_first", [True, False])
def test_the_same_evaluation_with_and_without_gradient_is_one_pass(
    constant_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    network, x = MLP(4, (8,), 2), torch.randn(6, 4)
    calls: list[int] = []
    original = nodes.forward

    def counted(*arguments: Any) -> Tensor:
        calls.append(1)
        return original(*arguments)

    monkeypatch.setattr(nodes, "forward", counted)

    def constant(inputs: Tensor) -> Tensor:
        with torch.no_grad():
            return network(inputs).mul_(2)  # changing it in place must not reach the other

    def loss() -> Tensor:
        if constant_first:
            factor = constant(x)
            return (factor * network(x)).square().sum()
        values = network(x)
        return (constant(x[:]) * values).square().sum()

    found = on_tape(network, loss)
    assert len(calls) == 1
    monkeypatch.undo()
    assert_same(found, plainly(network, loss), rtol=1e-5, atol=1e-5)


def test_an_input_that_changed_is_evaluated_again() -> None:
    network, x = MLP(4, (8,), 2), torch.randn(6, 4)
    with Tape(list(network.parameters())), torch.no_grad():
        before = network(x)
        x.add_(1)
        assert not torch.equal(before, network(x))


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 6),  # members
    st.lists(st.integers(1, 12), min_size=1, max_size=3),
    st.sampled_from([1, 1, 4]),  # outputs
    st.integers(1, 5),  # samples
    st.integers(1, 9),  # states
    st.sampled_from([torch.float32, torch.float64]),
)
def test_several_actions_in_a_state_are_those_of_states_repeated(
    members: int, hidden: list[int], out: int, count: int, rows: int, dtype: torch.dtype
) -> None:
    torch.manual_seed(members + 10 * count)
    network = EnsembleMLP(members, 5, hidden, out).to(dtype)
    obs, actions = torch.randn(rows, 3, dtype=dtype), torch.randn(count, rows, 2, dtype=dtype)
    repeated = torch.cat([obs.expand(count, -1, -1), actions], -1).flatten(0, 1)
    factors = torch.randn(members, count, rows, *[out] * (out > 1), dtype=dtype)

    def loss() -> Tensor:
        return (network.at_actions(obs, actions).sigmoid() * factors).sum()

    def plain() -> Tensor:
        return (network(repeated).unflatten(1, (count, rows)).sigmoid() * factors).sum()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(samples, "LEAST", 0)
        patch.setattr(pool, "SMALL", 0)
        for _ in range(2):  # the second in memory that was used before
            found = on_tape(network, loss)
        with torch.no_grad():
            value = loss()
        with Tape([]):  # of a loss that trains something else
            fixed = loss()
    assert_same(found, plainly(network, plain), rtol=1e-5, atol=1e-5)
    for each in (value, fixed):
        torch.testing.assert_close(each, plain().detach(), rtol=1e-5, atol=1e-5)


def test_states_are_repeated_where_gradients_in_the_actions_are_wanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(samples, "LEAST", 0)
    network, other = EnsembleMLP(2, 5, (8,)), MLP(3, (), 2)
    obs, noise = torch.randn(4, 3), torch.randn(3, 4, 2)

    def loss() -> Tensor:
        return network.at_actions(obs, other(obs) + noise).sum()

    assert_same(on_tape(other, loss), plainly(other, loss))
    assert_same(on_tape(network, loss, list(other.parameters()))[:4], plainly(network, loss))


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("hidden", [(), (8,), (8, 6)])
@pytest.mark.parametrize("member", [None, 1])
@pytest.mark.parametrize("large", [False, True])
def test_the_gradient_in_actions_alone_is_that_of_states_and_actions(
    layer_norm: bool, hidden: tuple[int, ...], member: int | None, large: bool
) -> None:
    torch.manual_seed(0)
    out = 1 if member is None else 3
    critic = EnsembleMLP(2, 5, hidden, out, layer_norm=layer_norm).double()
    actor, obs = MLP(3, (4,), 2).double(), torch.randn(20, 3).double()

    def loss() -> Tensor:
        return critic.at_actions(obs, actor(obs), member).sigmoid().square().sum()

    expected = plainly(actor, loss)
    with chunks_of(7, alone=True) if large else nullcontext():
        found = on_tape(actor, loss)
        with Tape(list(actor.parameters())):
            values = critic.at_actions(obs, actor(obs), member)
    assert_same(found, expected)
    node = values.grad_fn if member is None else values.grad_fn.next_functions[0][0]  # type: ignore[union-attr]
    assert node.name() == "_RelayBackward"
    assert [each is None for each, _ in node.next_functions] == [
        False,
        True,
    ]  # the states have none
