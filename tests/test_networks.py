"""The ensemble against separate networks made of its parameters; arrays against tensors."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution

from rl_training.models import MLP, EnsembleMLP, Init, MLPSACModel
from rl_training.models.distributions import drawn_log_prob, squashed_gaussian_log_prob
from rl_training.models.mlp import LARGE
from rl_training.models.numpy_forward import numpy_mlp

SHAPES = [(2, 5, (16, 8)), (10, 23, (32, 32)), (1, 3, (7,)), (3, 4, ())]
CLOSE = {"rtol": 1e-6, "atol": 1e-6}


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def separate(ensemble: EnsembleMLP, index: int) -> nn.Sequential:
    """The member as a plain torch network."""
    layers: list[nn.Module] = []
    *hidden, (last_weight, last_bias) = zip(ensemble.weights, ensemble.biases, strict=True)
    weights = [(weight[index].T, bias[index, 0]) for weight, bias in hidden]
    for weight, bias in [*weights, (last_weight[index], last_bias[index])]:
        linear = nn.Linear(weight.shape[1], weight.shape[0])
        linear.weight.data, linear.bias.data = weight.detach().clone(), bias.detach().clone()
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def weighted_square(values: Tensor) -> Tensor:
    """A loss with a different gradient for every entry."""
    return (torch.linspace(-1, 2, values.shape[-1]) * values.square()).mean()


@pytest.mark.parametrize(("members", "in_dim", "hidden"), SHAPES)
def test_ensemble_equals_separate_networks(members: int, in_dim: int, hidden: tuple) -> None:
    ensemble = EnsembleMLP(members, in_dim, hidden)
    networks = [separate(ensemble, index) for index in range(members)]
    x = torch.randn(33, in_dim, requires_grad=True)
    values = ensemble(x)
    expected = torch.stack([network(x).squeeze(-1) for network in networks])
    assert values.shape == (members, 33)
    torch.testing.assert_close(values, expected, **CLOSE)

    ours = torch.autograd.grad(weighted_square(values), [x, *ensemble.parameters()])
    theirs = torch.autograd.grad(
        weighted_square(expected), [x, *(p for net in networks for p in net.parameters())]
    )
    torch.testing.assert_close(ours[0], theirs[0], **CLOSE)
    by_name = dict(zip((name for name, _ in ensemble.named_parameters()), ours[1:], strict=True))
    per_member = len(theirs[1:]) // members
    for index in range(members):
        own = theirs[1 + index * per_member : 1 + (index + 1) * per_member]
        for layer, (weight, bias) in enumerate(zip(own[::2], own[1::2], strict=True)):
            found = by_name[f"weights.{layer}"][index]
            last = layer == len(hidden)
            torch.testing.assert_close(found if last else found.T, weight, **CLOSE)
            found = by_name[f"biases.{layer}"][index].reshape(-1)
            torch.testing.assert_close(found, bias, **CLOSE)


@pytest.mark.parametrize(("members", "in_dim", "hidden"), SHAPES)
def test_one_member_equals_its_row_of_all(members: int, in_dim: int, hidden: tuple) -> None:
    ensemble = EnsembleMLP(members, in_dim, hidden)
    x = torch.randn(9, in_dim, requires_grad=True)
    inputs = [x, *ensemble.parameters()]
    for index in range(members):
        alone, among = ensemble(x, members=index), ensemble(x)[index]
        assert alone.shape == (9,)
        torch.testing.assert_close(alone, among, **CLOSE)
        for a, b in zip(
            torch.autograd.grad(weighted_square(alone), inputs),
            torch.autograd.grad(weighted_square(among), inputs),
            strict=True,
        ):
            torch.testing.assert_close(a, b, **CLOSE)


@pytest.mark.parametrize("out_dim", [1, 4])
@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("width", [8, LARGE // 6 + 1])  # in one product, and one by one
def test_several_actions_in_each_state(out_dim: int, layer_norm: bool, width: int) -> None:
    ensemble = EnsembleMLP(2, 5, (width,), out_dim, layer_norm=layer_norm)
    obs, actions = torch.randn(6, 3), torch.randn(4, 6, 2)
    values = ensemble(obs, actions)
    assert values.shape == (2, 4, 6) + (out_dim,) * (out_dim > 1)
    for sample, taken in enumerate(actions):
        expected = ensemble(torch.cat([obs, taken], -1))
        torch.testing.assert_close(values[:, sample], expected, **CLOSE)
        torch.testing.assert_close(ensemble(obs, taken), expected, **CLOSE)


def test_chosen_members_are_those_rows_of_all() -> None:
    ensemble, obs, actions = EnsembleMLP(5, 5, (8, 8)), torch.randn(6, 3), torch.randn(6, 2)
    everyone = ensemble(obs, actions)
    subset = torch.tensor([3, 0])
    torch.testing.assert_close(ensemble(obs, actions, subset), everyone[subset], **CLOSE)
    torch.testing.assert_close(ensemble(obs, actions, 2), everyone[2], **CLOSE)
    shuffled = torch.randperm(5)  # all of them: only their least value or mean is ever asked for
    assert torch.equal(ensemble(obs, actions, shuffled).amin(0), everyone.amin(0))


def test_members_start_like_linear_layers_of_their_own_width() -> None:
    ensemble = EnsembleMLP(8, 50, (200, 30))
    for fan_in, weight, bias in zip((50, 200, 30), ensemble.weights, ensemble.biases, strict=True):
        bound = 1 / math.sqrt(fan_in)
        for parameter in (weight, bias):
            assert parameter.abs().max() <= bound
            assert parameter.abs().amax(tuple(range(1, parameter.ndim))).unique().numel() > 1
        assert weight.abs().max() > 0.98 * bound  # it fills the range
        assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1)


def test_copies_and_files_hold_the_same_function() -> None:
    ensemble, x = EnsembleMLP(2, 4, (6, 6)), torch.randn(5, 4)
    twin = copy.deepcopy(ensemble)
    other = EnsembleMLP(2, 4, (6, 6))
    other.load_state_dict(load(save(ensemble.state_dict())))
    assert sorted(ensemble.state_dict()) == [
        f"{kind}.{i}" for kind in ("biases", "weights") for i in range(3)
    ]
    expected = ensemble(x)
    with torch.no_grad():
        for parameter in ensemble.parameters():
            parameter.zero_()
    assert not ensemble(x).any()
    assert torch.equal(twin(x), expected)
    assert torch.equal(other(x), expected)


def test_a_stand_in_for_the_parameters_is_used() -> None:
    ensemble, x = EnsembleMLP(2, 4, (6, 6)), torch.randn(5, 4)
    zeros = {name: torch.zeros_like(value) for name, value in ensemble.named_parameters()}
    assert not torch.func.functional_call(ensemble, zeros, (x,)).any()


@pytest.mark.parametrize("hidden", [(64, 64), (256, 256), (5,), (8, 7, 6), ()])
@pytest.mark.parametrize("batch", [None, 1, 17])
def test_arrays_give_what_tensors_give(hidden: tuple, batch: int | None) -> None:
    network = MLP(11, hidden, 3)
    x = torch.randn(11) if batch is None else torch.randn(batch, 11)
    values = numpy_mlp(network, copies=True)(x.numpy())
    assert values.dtype == np.float32
    np.testing.assert_allclose(values, network(x).detach().numpy(), **CLOSE)


def test_array_function_keeps_its_weights_and_leaves_its_input() -> None:
    network, x = MLP(4, (8,), 2), torch.randn(4)
    function, before = numpy_mlp(network, copies=True), x.clone()
    expected = network(x).detach().numpy()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
    np.testing.assert_allclose(function(x.numpy()), expected, **CLOSE)
    assert torch.equal(x, before)


def test_xavier_takes_the_sizes_of_one_member() -> None:
    init = Init(xavier=True)
    for network in (MLP(30, (50,), 20, init), EnsembleMLP(4, 30, (50,), 20, init=init)):
        named = {name: value for name, value in network.named_parameters() if "weight" in name}
        first, last = named.values()
        assert all(not value.any() for name, value in network.named_parameters() if "bias" in name)
        assert first.abs().max().item() == pytest.approx((6 / 80) ** 0.5, rel=0.02)
        assert last.abs().max().item() == pytest.approx((6 / 70) ** 0.5, rel=0.02)
    head = EnsembleMLP(64, 30, (), init=init).weights[0]
    assert head.abs().max().item() == pytest.approx((6 / 31) ** 0.5, rel=0.02)


def test_a_draw_has_the_density_and_slopes_of_any_action() -> None:
    torch.manual_seed(0)
    mean, log_std = (torch.randn(5, 3, dtype=torch.float64).requires_grad_() for _ in range(2))
    noise, weights = torch.randn(4, 5, 3, dtype=torch.float64), torch.randn(4, 5)
    pre_tanh = mean + log_std.exp() * noise
    drawn = drawn_log_prob(log_std, noise, pre_tanh)
    given = squashed_gaussian_log_prob(mean, log_std, pre_tanh)
    torch.testing.assert_close(drawn, given)
    for value in (mean, log_std):
        ours, expected = (
            torch.autograd.grad((weights * density).sum(), value, retain_graph=True)[0]
            for density in (drawn, given)
        )
        torch.testing.assert_close(ours, expected)


def test_densities_of_given_actions_are_those_of_the_squashed_gaussian() -> None:
    """`MLPSACModel.action_logprobs` against torch.distributions, in double precision."""
    model = MLPSACModel(3, 2, (8, 8))
    obs, actions = torch.randn(64, 3), 1.98 * torch.rand(64, 2) - 0.99
    found = model.action_logprobs(obs, actions)
    mean, log_std = model.actor(obs)
    expected = squashed(mean, log_std).log_prob(actions.double())
    assert found.shape == (64,)
    torch.testing.assert_close(found, expected.float(), atol=1e-3, rtol=1e-4)
    drawn, log_probs = model.actor.draw(obs, torch.randn(64, 2))
    inside = (drawn.abs() < 0.999).all(-1)
    again = model.action_logprobs(obs, drawn)
    torch.testing.assert_close(again[inside], log_probs[inside], atol=1e-3, rtol=1e-3)


def test_actions_at_the_bounds_count_as_just_inside() -> None:
    """1e-5 inside, where the density and its slope are finite; beyond the bounds alike."""
    model = MLPSACModel(3, 2, (8, 8))
    obs = torch.randn(4, 3)
    at_bounds = torch.tensor([[1.0, -1.0], [-1.0, 0.5], [1.0, 1.0], [1.2, -3.0]])
    found = model.action_logprobs(obs, at_bounds)
    mean, log_std = model.actor(obs)
    inside = at_bounds.clamp(-1 + 1e-5, 1 - 1e-5).double()
    torch.testing.assert_close(
        found, squashed(mean, log_std).log_prob(inside).float(), atol=1e-2, rtol=1e-3
    )
    slopes = torch.autograd.grad(found.sum(), list(model.actor.parameters()))
    assert all(slope.isfinite().all() for slope in slopes)
    assert any(slope.abs().max() > 0 for slope in slopes)


def squashed(mean: Tensor, log_std: Tensor) -> Any:
    normal = Normal(mean.double(), log_std.double().exp())
    return Independent(TransformedDistribution(normal, TanhTransform()), 1)


def test_the_density_of_given_actions_integrates_to_one() -> None:
    model = MLPSACModel(3, 1, (8, 8))
    width = 1e-4
    actions = torch.arange(-1 + width / 2, 1, width).unsqueeze(1)
    log_probs = model.action_logprobs(torch.randn(1, 3).expand(len(actions), 3), actions)
    assert log_probs.exp().sum().item() * width == pytest.approx(1, abs=1e-3)
