"""What is special to IQL: reference values, whose value is used where, the actor's schedule."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from rl_training.algorithms.iql import (
    IQLAlgorithm,
    IQLConfig,
    actor_loss,
    critic_loss,
    iql_actor_loss,
    iql_critic_loss,
    iql_loss,
    iql_value_loss,
    least_target_q,
    value_loss,
)
from rl_training.algorithms.targets import td_target
from rl_training.config import ConfigError
from rl_training.data import Batch, TransitionDataset
from rl_training.models import gaussian_log_prob
from rl_training.runtime import Callback, train
from rl_training.runtime.config.schedules import ScheduleConfig, factor
from rl_training.runtime.policy import Policy
from rl_training.spec import ProblemSpec

SPEC = ProblemSpec(3, "continuous", 2, (-1.0, -1.0), (1.0, 1.0))
CHOICES = ProblemSpec(3, "discrete", 4)
MIN_Q = torch.tensor([[1.0, 2.0, 0.5, 3.0], [1.5, 1.0, 0.7, 2.5]]).amin(0)
VALUES = torch.tensor([0.8, 1.2, 0.9, 2.0])


def make(spec: ProblemSpec = SPEC, **options: Any) -> IQLAlgorithm:
    return IQLAlgorithm(spec, IQLConfig(hidden_sizes=(8, 8), **options), seed=1)


def random_batch(spec: ProblemSpec = SPEC, rows: int = 16) -> Batch:
    generator = torch.Generator().manual_seed(0)
    obs, next_obs = torch.randn(2, rows, spec.obs_dim, generator=generator)
    actions = 2 * torch.rand(rows, spec.action_dim, generator=generator) - 1
    if spec.action_kind == "discrete":
        actions = actions.argmax(-1)
    rewards = torch.randn(rows, generator=generator)
    return Batch(obs, actions, rewards, next_obs, (torch.arange(rows) % 4 == 0).float())


@pytest.mark.parametrize(
    ("expectile", "loss"), [(0.5, 0.06125), (0.7, 0.06575), (0.9, 0.07025)], ids=str
)
def test_expectile_loss_has_the_reference_value(expectile: float, loss: float) -> None:
    terms = iql_value_loss(min_q=MIN_Q, values=VALUES, expectile=expectile)
    assert terms["value_loss"].item() == pytest.approx(loss, abs=1e-5)


def test_a_high_expectile_pulls_values_up_and_leaves_the_critics_alone() -> None:
    values, min_q = VALUES.clone().requires_grad_(), MIN_Q.clone().requires_grad_()
    iql_value_loss(min_q=min_q, values=values, expectile=0.7)["value_loss"].backward()
    assert values.grad is not None
    assert values.grad.tolist() == pytest.approx([-0.07, 0.03, 0.06, -0.175], abs=1e-6)
    assert min_q.grad is None


@pytest.mark.parametrize(
    ("beta", "weights"),
    [
        (3.0, [1.822119, 0.548812, 0.301194, 4.481689]),
        (10.0, [7.389056, 0.135335, 0.018316, 100.0]),  # the last is 148.41 before the bound
        (1e4, [100.0, 0.0, 0.0, 100.0]),  # infinite before the bound
    ],
)
def test_advantage_weights_are_bounded_after_exp(beta: float, weights: list[float]) -> None:
    log_probs = torch.zeros(4, requires_grad=True)
    loss = iql_actor_loss(
        log_probs=log_probs, advantages=MIN_Q - VALUES, beta=beta, max_advantage_weight=100.0
    )["actor_loss"]
    (gradient,) = torch.autograd.grad(loss, log_probs)
    assert (-4 * gradient).tolist() == pytest.approx(weights, abs=1e-5)


def test_actor_loss_has_the_reference_value() -> None:
    mean, log_std = torch.tensor([[0.1, -0.2], [0.5, 0.0]]), torch.tensor([-0.5, 0.2])
    log_probs = gaussian_log_prob(mean, log_std, torch.tensor([[0.3, 0.4], [-0.5, 0.9]]))
    assert log_probs.tolist() == pytest.approx([-1.712900, -3.168498], abs=1e-5)
    advantages = torch.tensor([0.2, -0.2], requires_grad=True)
    log_probs.requires_grad_()
    terms = iql_actor_loss(
        log_probs=log_probs, advantages=advantages, beta=3.0, max_advantage_weight=100.0
    )
    assert terms["actor_loss"].item() == pytest.approx(2.430008, abs=1e-5)
    terms["actor_loss"].backward()
    assert advantages.grad is None  # weights are numbers, not a path to the critics


def reference_target() -> Tensor:
    return td_target(
        rewards=torch.tensor([1.0, 0.0, -1.0, 2.0]),
        terminations=torch.tensor([0.0, 1.0, 0.0, 0.0]),
        next_values=torch.tensor([2.0, 5.0, 1.0, -1.0]),
        gamma=0.99,
    )


def test_critic_loss_has_the_reference_value() -> None:
    target_q = reference_target()
    assert target_q.tolist() == pytest.approx([2.98, 0.0, -0.01, 1.01], abs=1e-5)
    q_values = torch.tensor([[1.0, 2.0, 0.5, 3.0], [1.5, 1.0, 0.7, 2.5]])
    terms = iql_critic_loss(q_values=q_values, target_q=target_q)
    assert terms["critic_loss"].item() == pytest.approx(4.5138, abs=1e-5)


def test_whole_loss_is_its_parts() -> None:
    terms = iql_loss(
        min_q=MIN_Q,
        values=VALUES,
        log_probs=-torch.ones(4),
        q_values=torch.zeros(2, 4),
        target_q=torch.ones(4),
        expectile=0.7,
        beta=3.0,
        max_advantage_weight=100.0,
    )
    assert terms["value_loss"].item() == pytest.approx(0.06575, abs=1e-5)
    assert terms["actor_loss"].item() == pytest.approx(7.153814 / 4, abs=1e-5)
    assert terms["critic_loss"].item() == pytest.approx(2)


def loss_values(algorithm: IQLAlgorithm, batch: Batch) -> dict[str, float]:
    functions = {"value": value_loss, "actor": actor_loss, "critic": critic_loss}
    shared = {"shared": algorithm.evaluate(least_target_q, batch)}
    return {
        name: function(
            algorithm, batch, {}, algorithm.config, **({} if name == "critic" else shared)
        )[f"{name}_loss"].item()
        for name, function in functions.items()
    }


@pytest.mark.parametrize(
    ("network", "affected"),
    [
        ("target_critic", {"value", "actor"}),
        ("critic", {"critic"}),
        ("value", {"value", "actor", "critic"}),
        ("actor", {"actor"}),
    ],
)
@pytest.mark.parametrize("spec", [SPEC, CHOICES], ids=["continuous", "discrete"])
def test_value_and_actor_see_the_target_critics(
    spec: ProblemSpec, network: str, affected: set[str]
) -> None:
    algorithm, batch = make(spec), random_batch(spec)
    before = loss_values(algorithm, batch)
    with torch.no_grad():
        for parameter in getattr(algorithm, network).parameters():
            parameter += 0.1
    after = loss_values(algorithm, batch)
    assert {name for name in before if before[name] != after[name]} == affected


def test_actor_and_critic_see_the_value_of_the_same_update() -> None:
    algorithm, batch = make(learning_rate=0.1), random_batch()
    terms = algorithm.update(batch)
    fresh, after = make(learning_rate=0.1), {}
    shared = fresh.evaluate(least_target_q, batch)
    fresh.minimize("value", batch, shared=shared)
    for name, more in (("actor", {"shared": shared}), ("critic", {})):
        after |= fresh.losses[name](fresh, batch, {}, fresh.config, **more)
        assert terms[f"{name}_loss"] == after[f"{name}_loss"]
    stale = loss_values(make(learning_rate=0.1), batch)
    assert terms["actor_loss"].item() != stale["actor"]
    assert terms["critic_loss"].item() != stale["critic"]


def test_networks_start_orthogonal_and_the_deviation_at_one() -> None:
    algorithm = make()
    for weight in (algorithm.value.layers[1].weight, algorithm.critic.weights[1][0]):
        torch.testing.assert_close(weight @ weight.T, 2 * torch.eye(8), atol=1e-5, rtol=0)
    assert not algorithm.actor.log_std.any()
    assert algorithm.actor.log_std_bounds == (-5, 2)


@pytest.mark.parametrize(
    ("step", "rate"),
    [(0, 3e-4), (250_000, 2.56066e-4), (500_000, 1.5e-4), (750_000, 4.393398e-5), (1_000_000, 0)],
)
def test_cosine_rate_has_the_reference_values(step: int, rate: float) -> None:
    schedule = ScheduleConfig(kind=IQLAlgorithm.schedules["actor"])  # type: ignore[arg-type]
    found = 3e-4 * factor(schedule, step, total=1_000_000, warmup_steps=0)
    assert found == pytest.approx(rate, abs=1e-10)


class Rates(Callback):
    """Writes down the learning rates after every update."""

    def __init__(self) -> None:
        self.seen: list[dict[str, float]] = []

    def on_update_end(self, state: Any, terms: Any) -> None:
        optimizers = state.algorithm.optimizers.items()
        self.seen.append({name: optimizer.param_groups[0]["lr"] for name, optimizer in optimizers})


def test_only_the_actor_rate_decays_unless_told_otherwise(small_config: Any) -> None:
    rates = Rates()
    train(small_config("iql", total_timesteps=20), callbacks=[rates])
    actor = [seen["actor"] for seen in rates.seen]
    assert actor[0] > actor[10] > actor[-1]
    assert actor[-1] < 0.05 * 3e-4
    assert {seen[name] for seen in rates.seen for name in ("value", "critic")} == {3e-4}
    constant = Rates()
    config = small_config(
        "iql", total_timesteps=5, algo_kwargs={"learning_rate_schedule": "constant"}
    )
    train(config, callbacks=[constant])
    assert {seen["actor"] for seen in constant.seen} == {3e-4}


def test_returns_set_the_scale_of_rewards() -> None:
    rewards = torch.tensor([-50.0, 3000.0, 150.0])
    blank, ends = torch.zeros(3, 1), torch.ones(3)
    dataset = TransitionDataset(blank, blank, rewards, blank, ends)
    assert dataset.return_range_scale() == pytest.approx(0.327869, abs=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"expectile": 1.0}, r"expectile: must be < 1 \(range: > 0(\.0)?, < 1(\.0)?\), got 1.0"),
        ({"expectile": 0.0}, "expectile: must be > 0"),
        ({"beta": 0}, "beta: must be > 0, got 0"),
        ({"max_advantage_weight": -1.0}, "max_advantage_weight: must be > 0"),
        ({"value_learning_rate": 0.0}, "value_learning_rate: must be > 0"),
        ({"expectil": 0.7}, "did you mean 'expectile'"),
    ],
)
def test_bad_options_fail_fast(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        IQLConfig(**options)


def test_the_value_has_a_learning_rate_of_its_own() -> None:
    optimizers = make(value_learning_rate=1e-2).optimizers
    assert optimizers["value"].param_groups[0]["lr"] == 1e-2
    assert optimizers["critic"].param_groups[0]["lr"] == 3e-4


def test_discrete_actions_train_and_act() -> None:
    algorithm, batch = make(CHOICES), random_batch(CHOICES)
    for _ in range(2):
        assert all(value.isfinite() for value in algorithm.update(batch).values())
    one, many = Policy(algorithm).predict([0.0] * 3), algorithm.act(batch.obs, explore=True)
    assert int(one) in range(4)
    assert many.shape == (16,)
    assert set(many.tolist()) <= set(range(4))


def bandit(rows: int = 4000) -> TransitionDataset:
    """One state, actions U(-1, 1), reward -(a - 0.5)², over at once."""
    generator = torch.Generator().manual_seed(0)
    actions = 2 * torch.rand(rows, 1, generator=generator) - 1
    obs = torch.zeros(rows, 1)
    rewards = -(actions - 0.5).square().squeeze(1)
    return TransitionDataset(obs, actions, rewards, obs, torch.ones(rows))


def test_bandit_moves_from_cloning_to_the_best_action_with_beta() -> None:
    found = []
    for beta in (0.01, 1.0, 10.0):
        config = IQLConfig(beta=beta, hidden_sizes=(32, 32), learning_rate=3e-3, tau=0.05)
        algorithm = IQLAlgorithm(ProblemSpec(1, "continuous", 1, (-1.0,), (1.0,)), config)
        dataset, generator = bandit(), torch.Generator().manual_seed(0)
        for _ in range(800):
            algorithm.update(dataset.sample(128, generator=generator))
        found.append(algorithm.act(torch.zeros(1, 1)).item())
    assert abs(found[0]) < 0.08
    assert found[0] + 0.1 < found[1] < found[2] - 0.05
    assert found[2] == pytest.approx(0.42, abs=0.1)
