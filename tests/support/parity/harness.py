"""The same weights, the same batch and the same noise for d3rlpy and for us.

d3rlpy is built first and its weights are copied into our networks. Our losses take their noise
as an argument, so an update of ours is run first, what it drew is written down, and d3rlpy is
given that in place of fresh draws. d3rlpy's parameters are laid out like ours before comparing,
so a difference names our parameter.

Learning rates and tau are much larger than in practice, so that one update moves every number
by far more than the tolerance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rl_training.algorithms import get_algorithm_spec
from rl_training.data import Batch
from rl_training.spec import ProblemSpec

OBS, ACTIONS, HIDDEN, ROWS = 3, 2, (8, 8), 16
SPEC = ProblemSpec(OBS, "continuous", ACTIONS, (-1.0,) * ACTIONS, (1.0,) * ACTIONS)
RATES = {"actor": 3e-3, "critic": 5e-3}
TOLERANCE = 1e-5

Take = Callable[[Tensor], Tensor]  # a parameter -> itself or its gradient
State = dict[str, Tensor]
Read = Callable[[Any], dict[str, State]]  # another library's networks under our names


def value_of(parameter: Tensor) -> Tensor:
    return parameter.detach().clone()


def gradient_of(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad.detach().clone()


def make_batch(seed: int = 0) -> Batch:
    """16 transitions of which five terminate; some actions lie at the bounds."""
    draw = torch.Generator().manual_seed(seed)
    actions, next_actions = (torch.rand(2, ROWS, ACTIONS, generator=draw) * 2 - 1) * 1.2
    return Batch(
        obs=torch.randn(ROWS, OBS, generator=draw),
        actions=actions.clamp(-1, 1),
        rewards=torch.randn(ROWS, generator=draw),
        next_obs=torch.randn(ROWS, OBS, generator=draw),
        terminations=(torch.arange(ROWS) % 3 == 1).float(),
        next_actions=next_actions.clamp(-1, 1),
        next_action_valid=torch.ones(ROWS),
    )


def normal(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def as_d3rlpy(batch: Batch) -> Any:
    from d3rlpy.torch_utility import TorchMiniBatch

    column = batch.rewards.unsqueeze(1)
    return TorchMiniBatch(
        observations=batch.obs,
        actions=batch.actions,
        rewards=column,
        next_observations=batch.next_obs,
        next_actions=batch.next_actions,
        returns_to_go=torch.zeros_like(column),
        terminals=batch.terminations.unsqueeze(1),
        intervals=torch.ones_like(column),
        device="cpu",
    )


def make_d3rlpy(name: str, *, seed: int = 0, layer_norm: bool = False, **options: Any) -> Any:
    """d3rlpy's implementation object, with targets that differ from the online networks."""
    import d3rlpy

    def encoder(**more: Any) -> Any:
        return d3rlpy.models.VectorEncoderFactory(hidden_units=list(HIDDEN), **more)

    networks = {
        "actor_encoder_factory": encoder(),
        "critic_encoder_factory": encoder(use_layer_norm=layer_norm),
    }
    if name == "IQL":
        networks["value_encoder_factory"] = encoder()
    rates = {f"{network}_learning_rate": rate for network, rate in RATES.items()}
    torch.manual_seed(seed)
    config = getattr(d3rlpy.algos, f"{name}Config")(**{**networks, **rates, **options})
    algorithm = config.create(device=False)
    algorithm.create_impl((OBS,), ACTIONS)
    impl = algorithm.impl
    with torch.no_grad():  # equal targets would hide a mix-up
        for module in (impl.modules.targ_q_funcs, getattr(impl.modules, "targ_policy", None)):
            for parameter in () if module is None else module.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
    return impl


def make_ours(name: str, **options: Any) -> Any:
    spec = get_algorithm_spec(name)
    rates = {f"{network}_learning_rate": rate for network, rate in RATES.items()}
    config = spec.config(hidden_sizes=HIDDEN, **{**rates, **options})
    return spec.algorithm(SPEC, config, seed=7)


def mlp(module: nn.Module, take: Take = value_of) -> State:
    """A policy or value function of d3rlpy in the names and shapes of our MLP."""
    layers = [m for m in module.modules() if isinstance(m, nn.Linear)]
    pairs = [(take(layer.weight), take(layer.bias)) for layer in layers]
    if isinstance(getattr(module, "_logstd", None), nn.Linear):  # two heads there, one wide here
        mean, log_std = pairs[-2:]
        pairs[-2:] = [(torch.cat([mean[0], log_std[0]]), torch.cat([mean[1], log_std[1]]))]
    state = {}
    for position, (weight, bias) in enumerate(pairs):
        state[f"layers.{position}.weight"] = weight
        state[f"layers.{position}.bias"] = bias
    return state


def actor(policy: nn.Module, take: Take = value_of) -> State:
    """A policy of d3rlpy like our actors, without a standard deviation that is one parameter."""
    return {f"net.{name}": value for name, value in mlp(policy, take).items()}


def ensemble(members: nn.ModuleList, take: Take = value_of) -> State:
    """Critics of d3rlpy in the names and shapes of our EnsembleMLP."""
    rows = [[m for m in member.modules() if isinstance(m, nn.Linear)] for member in members]
    state = {}
    for position, layers in enumerate(zip(*rows, strict=True)):
        weights = torch.stack([take(layer.weight) for layer in layers])
        biases = torch.stack([take(layer.bias) for layer in layers])
        last = position == len(rows[0]) - 1
        state[f"weights.{position}"] = weights if last else weights.transpose(1, 2)
        state[f"biases.{position}"] = biases if last else biases.unsqueeze(1)
    norms = [[m for m in member.modules() if isinstance(m, nn.LayerNorm)] for member in members]
    for position, layers in enumerate(zip(*norms, strict=True)):
        state[f"scales.{position}"] = torch.stack([take(m.weight) for m in layers]).unsqueeze(1)
        state[f"shifts.{position}"] = torch.stack([take(m.bias) for m in layers]).unsqueeze(1)
    return state


def networks(impl: Any) -> dict[str, State]:
    """Every network of d3rlpy under our name for it."""
    modules = impl.modules
    found = {
        "actor": actor(modules.policy),
        "critic": ensemble(modules.q_funcs),
        "target_critic": ensemble(modules.targ_q_funcs),
    }
    if hasattr(modules, "targ_policy"):
        found["target_actor"] = actor(modules.targ_policy)
    if hasattr(modules, "value_func"):
        found["value"] = mlp(modules.value_func)
    if hasattr(modules, "log_alpha"):  # CQL
        found["temperature"] = {"log": value_of(modules.log_temp._parameter[0, 0])}
        found["multiplier"] = {"log": value_of(modules.log_alpha._parameter[0, 0])}
    return found


def copy_weights(impl: Any, ours: Any) -> None:
    """From d3rlpy to ours; a standard deviation that is one parameter: see `share_log_std`."""
    for name, state in networks(impl).items():
        if not hasattr(ours, name):  # CQL's multiplier, unless it is learned
            continue
        result = getattr(ours, name).load_state_dict(state, strict=False)
        assert not result.unexpected_keys
        assert set(result.missing_keys) <= {"log_std"}


def share_log_std(ours: Any, policy: Any) -> Tensor:
    """Give d3rlpy's policy our standard deviation; returns d(our parameter) / d(its parameter).

    d3rlpy's IQL and AWAC learn x with log_std = low + (high - low) sigmoid(x), which starts in
    the middle of the range. So does our AWAC; IQL's authors and our IQL clip log_std itself.
    """
    low, high = policy._min_logstd, policy._max_logstd
    assert (low, high) == ours.actor.log_std_bounds
    if ours.actor.sigmoid_std:
        with torch.no_grad():
            policy._logstd.copy_(ours.actor.log_std)
        return torch.ones(())
    share = (ours.actor.log_std.detach() - low) / (high - low)
    with torch.no_grad():
        policy._logstd.copy_(torch.logit(share))
    return (high - low) * share * (1 - share)


def gradients(
    ours: Any, name: str, batch: Batch, noise: Mapping[str, Tensor], **shared: Any
) -> State:
    """Our loss and its gradient in the network that it trains."""
    terms = ours.losses[name](ours, batch, noise, ours.config, **shared)
    named = dict(getattr(ours, name).named_parameters())
    found = torch.autograd.grad(terms[f"{name}_loss"], list(named.values()))
    return {"loss": terms[f"{name}_loss"].detach(), **dict(zip(named, found, strict=True))}


def update(ours: Any, batch: Batch) -> tuple[dict[str, Tensor], dict[str, State]]:
    """One update of ours: its terms, and the noise that it drew for each network."""
    drawn: dict[str, State] = {}
    plain = ours.minimize

    def minimize(name: str, batch: Batch, noise: Any = (), shared: Any = None) -> Any:
        drawn[name] = dict(noise)
        return plain(name, batch, drawn[name], shared)

    ours.minimize = minimize
    try:
        return ours.update(batch), drawn
    finally:
        del ours.minimize


@contextmanager
def draws(*noise: Tensor) -> Iterator[None]:
    """What another library gets from torch's generators, in the order in which it asks."""
    left = list(noise)

    def draw(*shape: Any, **_: Any) -> Tensor:
        assert left, "more noise is drawn than was given"
        wanted = tuple(shape[0]) if isinstance(shape[0], Sequence) else shape
        assert tuple(left[0].shape) == wanted, f"noise {tuple(left[0].shape)}, asked {wanted}"
        return left.pop(0).clone()

    def fill(tensor: Tensor, *bounds: float) -> Tensor:
        assert bounds == (-1.0, 1.0)
        return tensor.copy_(draw(tensor.shape))

    def fill_normal(tensor: Tensor, mean: float, deviation: float) -> Tensor:
        return tensor.copy_(mean + deviation * draw(tensor.shape))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "randn", draw)
        patch.setattr("torch.distributions.normal._standard_normal", draw)
        patch.setattr(torch.Tensor, "uniform_", fill)
        patch.setattr(torch.Tensor, "normal_", fill_normal)
        yield
    assert not left, f"{len(left)} draws were left unused"


def assert_same(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor], what: str = "") -> None:
    """Every tensor that d3rlpy has equals ours of that name."""
    for name, expected in theirs.items():
        torch.testing.assert_close(
            ours[name].detach(), expected, rtol=TOLERANCE, atol=TOLERANCE,
            msg=lambda text, name=name: f"{what} {name}: {text}",
        )  # fmt: skip


def assert_networks_agree(
    ours: Any, impl: Any, *, skip: Sequence[str] = (), read: Read = networks
) -> None:
    for name, state in read(impl).items():
        if name not in skip and hasattr(ours, name):
            assert_same(getattr(ours, name).state_dict(), state, name)


def assert_moved(
    before: Mapping[str, State], impl: Any, *names: str, read: Read = networks
) -> None:
    """Exactly the named networks of the other library have moved, by more than the tolerance."""
    for name, state in read(impl).items():
        far = max(float((state[key] - old).abs().max()) for key, old in before[name].items())
        assert far > 100 * TOLERANCE if name in names else far == 0, f"{name} moved by {far}"
