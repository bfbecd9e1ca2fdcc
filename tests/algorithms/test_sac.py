"""What is special to SAC: reference values, expectations over choices, the temperature."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.support.online import (
    CHOICES,
    SPEC,
    make,
    policy_with,
    random_batch,
    reference_batch,
    target_of_update,
)

from rl_training.algorithms.sac import (
    SACConfig,
    actor_loss,
    sac_actor_loss,
    sac_critic_loss,
    sac_loss,
    sac_temperature_loss,
    soft_values,
)
from rl_training.config import ConfigError
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.spec import ProblemSpec

LOG_PROBS = [-1.0, 0.2, 0.6]
POLICY_Q = torch.tensor([[4.0, 3.0, 2.0], [5.0, 2.5, 1.0]])


@pytest.mark.parametrize(
    ("last_ends", "last_target"),
    [(1.0, 0.5), (0.0, -1.876)],
    ids=["terminated", "truncated"],
)
def test_target_is_the_least_critic_with_entropy(last_ends: float, last_target: float) -> None:
    nets = SimpleNamespace(
        spec=SPEC,
        actor=policy_with([-1.5, 0.5, 2.0]),
        target_critic=lambda obs, actions: torch.tensor([[10.0, 5.0, -1.0], [9.0, 6.0, -2.0]]),
        critic=lambda obs, actions: torch.zeros(2, 3),
        temperature=lambda: torch.tensor(0.2),
    )
    batch = reference_batch([1.0, 0.0, 0.5], [0.0, 0.0, last_ends])
    noise = {"next": torch.zeros(3, 1)}
    target = target_of_update("sac", nets, batch, noise, SACConfig(gamma=0.99))
    assert target.tolist() == pytest.approx([10.207, 4.851, last_target], abs=1e-5)


def test_critic_loss_is_a_sum_over_critics_of_batch_means() -> None:
    q_values = torch.tensor([[1.0, 2.0], [3.0, 5.0]])
    terms = sac_critic_loss(q_values=q_values, target_q=torch.tensor([2.0, 2.0]))
    assert terms["critic_loss"].item() == pytest.approx(0.5 + 5.0)


def test_actor_loss_has_the_reference_value() -> None:
    terms = sac_actor_loss(
        q_values=POLICY_Q, log_probs=torch.tensor(LOG_PROBS), alpha=torch.tensor(0.2)
    )
    assert terms["actor_loss"].item() == pytest.approx(-2.513333, abs=1e-5)
    assert terms["entropy"].item() == pytest.approx(0.2 / 3, abs=1e-5)


def test_temperature_loss_and_its_gradient_have_the_reference_values() -> None:
    log_alpha = torch.tensor(0.2).log().requires_grad_()
    loss = sac_temperature_loss(
        log_alpha=log_alpha, log_probs=torch.tensor(LOG_PROBS), target_entropy=-2.0
    )["temperature_loss"]
    assert loss.item() == pytest.approx(-3.326172, abs=1e-5)
    (slope,) = torch.autograd.grad(loss, log_alpha)
    assert slope.item() == pytest.approx(2.066667, abs=1e-5)  # α falls: enough entropy


def test_whole_loss_is_its_parts() -> None:
    terms = sac_loss(
        q_values=torch.zeros(2, 3),
        target_q=torch.ones(3),
        policy_q_values=POLICY_Q,
        log_probs=torch.tensor(LOG_PROBS),
        log_alpha=torch.tensor(0.2).log(),
        target_entropy=-2.0,
    )
    found = [terms[f"{name}_loss"].item() for name in ("critic", "actor", "temperature")]
    assert found == pytest.approx([2.0, -2.513333, -3.326172], abs=1e-5)


# -- discrete -------------------------------------------------------------------------------------


def choosing_nets() -> Any:
    """One state with three choices, whose logits and values are given."""
    q_values = torch.tensor([[[2.0, 1.0, 0.0]], [[1.5, 1.2, 0.3]]])
    return SimpleNamespace(
        spec=ProblemSpec(1, "discrete", 3),
        actor=lambda _: torch.tensor([[1.0, 0.0, -1.0]]).log_softmax(-1),
        critic=lambda _: q_values,
        target_critic=lambda _: q_values,
        temperature=lambda: torch.tensor(0.2),
    )


def test_discrete_values_and_actor_are_expectations_with_the_reference_values() -> None:
    nets, batch = choosing_nets(), reference_batch([0.0], [0.0])
    probabilities = nets.actor(None).exp()
    assert probabilities[0].tolist() == pytest.approx([0.665241, 0.244728, 0.090031], abs=1e-5)
    value = soft_values(nets, batch.next_obs, {})
    assert value.tolist() == pytest.approx([1.409069], abs=1e-5)
    terms = actor_loss(nets, batch, {}, SACConfig())
    assert terms["actor_loss"].item() == pytest.approx(-1.409069, abs=1e-5)
    assert terms["entropy"].item() == pytest.approx(0.832396, abs=1e-5)


def test_discrete_actor_gradient_is_that_of_the_expectation() -> None:
    """d/dlogits of Σ π (α log π - q) is π (f - Σ π f), f = α log π - q."""
    logits = torch.tensor([[1.0, 0.0, -1.0]], requires_grad=True)
    log_probs = logits.log_softmax(-1)
    q_values = torch.tensor([[[1.5, 1.0, 0.0]]])
    loss = sac_actor_loss(
        q_values=q_values,
        log_probs=log_probs,
        alpha=torch.tensor(0.2),
        probabilities=log_probs.exp(),
    )["actor_loss"]
    (found,) = torch.autograd.grad(loss, logits)
    pi = log_probs.exp().detach()
    scores = 0.2 * log_probs.detach() - q_values[0]
    torch.testing.assert_close(found, pi * (scores - (pi * scores).sum()))


# -- the temperature: the same code serves TQC and REDQ ---------------------------------------------

soft = pytest.mark.parametrize("name", ["sac", "tqc", "redq"])


@soft
def test_the_temperature_takes_part_in_no_other_gradient(name: str) -> None:
    algorithm, batch = make(name), random_batch()
    noise = {key: torch.ones(16, 2) for key in ("next", "policy")}
    noise["subset"] = torch.tensor([0, 1])
    shared = {"log_probs": algorithm.actor.draw(batch.obs, noise["policy"])[1]}
    log_alpha = [algorithm.temperature.log]
    others = [*algorithm.actor.parameters(), *algorithm.critic.parameters()]

    def reached(network: str, parameters: list[Any]) -> bool:
        more = {"shared": shared} if network == "temperature" else {}
        loss = algorithm.losses[network](algorithm, batch, noise, algorithm.config, **more)
        found = torch.autograd.grad(loss[f"{network}_loss"], parameters, allow_unused=True)
        return any(gradient is not None for gradient in found)

    assert not reached("critic", log_alpha)
    assert not reached("actor", log_alpha)
    assert not reached("temperature", others)
    assert reached("temperature", log_alpha)


@soft
def test_the_temperature_sees_the_policy_that_the_actor_loss_saw(name: str) -> None:
    algorithm, batch = make(name, learning_rate=0.1, batch_size=16), random_batch()
    seen: dict[str, Any] = {}
    plain = algorithm.minimize

    def minimize(network: str, batch: Any, noise: Any = {}, shared: Any = None) -> Any:  # noqa: B006
        if network == "actor":
            seen["expected"] = algorithm.actor.draw(batch.obs, noise["policy"])[1].mean().item()
        if network == "temperature":
            seen["found"] = shared["log_probs"].item()
        return plain(network, batch, noise, shared)

    algorithm.minimize = minimize
    algorithm.update(batch)
    assert seen["found"] == pytest.approx(seen["expected"], abs=1e-6)


@soft
@pytest.mark.parametrize(("wanted", "direction"), [(50.0, 1), (-50.0, -1)], ids=["low", "high"])
def test_alpha_rises_while_entropy_is_below_its_target(
    name: str, wanted: float, direction: int
) -> None:
    algorithm = make(name, target_entropy=wanted)
    algorithm.update(random_batch())
    assert algorithm.temperature.log.item() * direction > 0


@soft
def test_a_fixed_alpha_is_not_learned(name: str) -> None:
    algorithm = make(name, alpha=0.3)
    assert list(algorithm.losses) == list(algorithm.optimizers) == ["critic", "actor"]
    terms = algorithm.update(random_batch())
    assert "temperature_loss" not in terms
    assert algorithm.temperature().item() == pytest.approx(0.3)
    assert "temperature" in make(name).losses  # the next one is asked anew


def test_alpha_may_be_zero() -> None:
    algorithm = make("sac", alpha=0.0)
    assert all(value.isfinite() for value in algorithm.update(random_batch()).values())


@pytest.mark.parametrize(
    ("name", "spec", "options", "wanted"),
    [
        ("sac", SPEC, {}, -2.0),
        ("tqc", SPEC, {}, -2.0),
        ("redq", SPEC, {}, -2.0),
        ("sac", ProblemSpec(3, "discrete", 3), {}, 1.076640),
        ("sac", SPEC, {"target_entropy": -0.5}, -0.5),
        ("sac", CHOICES, {"target_entropy": 0.0}, 0.0),  # zero is a wish too
    ],
)
def test_target_entropy(
    name: str, spec: ProblemSpec, options: dict[str, Any], wanted: float
) -> None:
    """Seen in the temperature's slope, -(log π + H), at log π = 0."""
    algorithm = make(name, spec, **options)
    loss = algorithm.losses["temperature"](
        algorithm, random_batch(spec), {}, algorithm.config, shared={"log_probs": torch.zeros(())}
    )["temperature_loss"]
    (slope,) = torch.autograd.grad(loss, algorithm.temperature.log)
    assert slope.item() == pytest.approx(-wanted, abs=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": -0.1}, "alpha: must be >= 0, got -0.1"),
        ({"alpha": "automatic"}, "alpha: .*'auto'"),
        ({"alpha": "0.2"}, "alpha: .*'0.2'"),
        ({"target_entropy": "high"}, "target_entropy: expected a number or one of 'auto'"),
        ({"temperature_learning_rate": 0.0}, "temperature_learning_rate: must be > 0"),
        ({"tau": 1.5}, r"tau: must be <= 1"),
        ({"gamma": -0.1}, "gamma: must be >= 0"),
    ],
)
def test_bad_options_fail_fast(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SACConfig(**options)


# -- a world of one state ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ends", "value"),
    [("never", 10.0), ("truncated", 10.0), ("terminated", 1 / (1 - 0.9 * 0.8))],
)
def test_value_of_a_reward_that_repeats(ends: str, value: float) -> None:
    """Reward 1 at every step from a state to itself; every 5th step may end an episode."""
    buffer = ReplayBuffer(20, 1, 1, discrete=True)
    for step in range(20):
        last = step % 5 == 4
        buffer.add_batch(
            [[1.0]], [step % 2], [1.0], [[1.0]],
            [last and ends == "terminated"], [last and ends == "truncated"],
        )  # fmt: skip
    batch = buffer.gather(torch.arange(20))
    algorithm = make(
        "sac", ProblemSpec(1, "discrete", 2), alpha=0.0, gamma=0.9, tau=0.1, learning_rate=0.01
    )
    for _ in range(1000):
        algorithm.update(batch)
    found = algorithm.critic(torch.ones(1, 1)).flatten().tolist()
    assert found == pytest.approx([value] * 4, abs=0.02)
