"""What is special to AWAC: the weights, which critics they come from, the order of updates."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rl_training.algorithms.awac import (
    AWACAlgorithm,
    AWACConfig,
    actor_loss,
    awac_actor_loss,
    awac_critic_loss,
    awac_loss,
    critic_loss,
)
from rl_training.config import ConfigError
from rl_training.data import Batch, TransitionDataset
from rl_training.spec import ProblemSpec

SPEC = ProblemSpec(1, "continuous", 1, (-1.0,), (1.0,))
DISCRETE = ProblemSpec(2, "discrete", 3)
ADVANTAGES = torch.tensor([0.5, -1.0, 2.0, 0.0])
LOG_PROBS = torch.tensor([-1.0, -2.0, -0.5, -3.0])


def terms_of(awac_lambda: float = 1.0, normalization: str = "exp", **changes: Any) -> Any:
    arguments = {
        "log_probs": LOG_PROBS,
        "advantages": ADVANTAGES,
        "awac_lambda": awac_lambda,
        "max_advantage_weight": 100.0,
        "weight_normalization": normalization,
        **changes,
    }
    return awac_actor_loss(**arguments)


def weights_of(awac_lambda: float, normalization: str = "exp") -> list[float]:
    """Each row's weight is -4 times the loss's gradient in its log-probability."""
    log_probs = LOG_PROBS.clone().requires_grad_()
    terms_of(awac_lambda, normalization, log_probs=log_probs)["actor_loss"].backward()
    assert log_probs.grad is not None
    return (-4 * log_probs.grad).tolist()


@pytest.mark.parametrize(
    ("awac_lambda", "normalization", "weights"),
    [
        (1.0, "exp", [1.648721, 0.367879, 7.389056, 1.0]),
        (0.3333, "exp", [4.482361, 0.049772, 100.0, 1.0]),
        (1.0, "softmax", [0.633779, 0.141415, 2.840400, 0.384406]),
    ],
)
def test_weights_have_the_reference_values(
    awac_lambda: float, normalization: str, weights: list[float]
) -> None:
    assert weights_of(awac_lambda, normalization) == pytest.approx(weights, abs=1e-5)


@pytest.mark.parametrize(("normalization", "loss"), [("exp", 2.269752), ("softmax", 0.872507)])
def test_actor_loss_has_the_reference_value(normalization: str, loss: float) -> None:
    assert terms_of(1.0, normalization)["actor_loss"].item() == pytest.approx(loss, abs=1e-5)


def test_share_of_capped_weights_is_logged() -> None:
    assert terms_of(0.3333)["advantage_weight_capped"].item() == pytest.approx(0.25)


def test_a_large_lambda_is_behaviour_cloning() -> None:
    for normalization in ("exp", "softmax"):
        assert weights_of(1e6, normalization) == pytest.approx([1.0] * 4, abs=1e-4)


def test_weights_take_no_gradient_and_huge_advantages_stay_finite() -> None:
    advantages = (1e4 * ADVANTAGES).requires_grad_()
    log_probs = LOG_PROBS.clone().requires_grad_()
    terms = terms_of(advantages=advantages, log_probs=log_probs)
    terms["actor_loss"].backward()
    assert terms["actor_loss"].isfinite()
    assert advantages.grad is None


def test_whole_loss_is_both_halves() -> None:
    q_values, target_q = torch.tensor([[9.0, 3.0], [10.0, 4.0]]), torch.tensor([9.90802, 3.45802])
    terms = awac_loss(
        q_values=q_values,
        target_q=target_q,
        log_probs=LOG_PROBS,
        advantages=ADVANTAGES,
        awac_lambda=1.0,
        max_advantage_weight=100.0,
        weight_normalization="exp",
    )
    assert terms["critic_loss"].item() == pytest.approx(0.668243, abs=1e-5)
    assert terms["actor_loss"].item() == pytest.approx(2.269752, abs=1e-5)
    assert (
        terms["critic_loss"]
        == awac_critic_loss(q_values=q_values, target_q=target_q)["critic_loss"]
    )


def random_batch(spec: ProblemSpec, rows: int = 16) -> Batch:
    generator = torch.Generator().manual_seed(0)
    obs, next_obs = torch.randn(2, rows, spec.obs_dim, generator=generator)
    if spec.action_kind == "discrete":
        actions = torch.randint(spec.action_dim, (rows,), generator=generator)
    else:
        actions = 2 * torch.rand(rows, spec.action_dim, generator=generator) - 1
    rewards = torch.randn(rows, generator=generator)
    return Batch(obs, actions, rewards, next_obs, (torch.arange(rows) % 4 == 0).float())


def test_advantage_uses_the_smaller_online_critic_and_one_draw() -> None:
    algorithm = AWACAlgorithm(SPEC, AWACConfig(hidden_sizes=(16,)), seed=1)
    batch, noise = random_batch(SPEC), {"policy": torch.full((16, 1), 0.3)}
    algorithm.actor.log_std.data.fill_(99.0)  # σ = 1
    for parameter in algorithm.target_critic.parameters():
        parameter.zero_()
    terms = actor_loss(algorithm, batch, noise, algorithm.config)
    draw = (algorithm.actor(batch.obs)[0] + 0.3).clamp(-1, 1)
    at_data = algorithm.critic(batch.obs, batch.actions).amin(0)
    at_draw = algorithm.critic(torch.cat([batch.obs, draw], -1)).amin(0)
    assert terms["advantage_mean"].item() == pytest.approx((at_data - at_draw).mean().item())


def test_target_is_the_smaller_target_critic_at_the_current_policy_without_entropy() -> None:
    algorithm = AWACAlgorithm(SPEC, AWACConfig(hidden_sizes=(16,), gamma=0.9), seed=1)
    batch, noise = random_batch(SPEC), {"next": torch.full((16, 1), -0.2)}
    algorithm.actor.log_std.data.fill_(99.0)  # σ = 1
    for parameter in algorithm.critic.parameters():
        parameter.detach().zero_()
    terms = critic_loss(algorithm, batch, noise, algorithm.config)
    draw = (algorithm.actor(batch.next_obs)[0] - 0.2).clamp(-1, 1)
    values = algorithm.target_critic(torch.cat([batch.next_obs, draw], -1)).amin(0)
    expected = batch.rewards + 0.9 * (1 - batch.terminations) * values
    assert terms["target_q_mean"].item() == pytest.approx(expected.mean().item(), abs=1e-6)


def test_the_actor_sees_the_updated_critic_and_targets_move_last() -> None:
    algorithm = AWACAlgorithm(SPEC, AWACConfig(hidden_sizes=(4,)))
    seen: list[str] = []
    minimize, track = algorithm.minimize, algorithm.track_targets
    algorithm.minimize = lambda name, *rest: seen.append(name) or minimize(name, *rest)  # type: ignore[assignment, func-returns-value]
    algorithm.track_targets = lambda tau: seen.append("targets") or track(tau)  # type: ignore[assignment, func-returns-value]
    algorithm.update(random_batch(SPEC))
    assert seen == ["critic", "actor", "targets"]


def test_deviation_is_one_number_per_dimension_between_the_bounds() -> None:
    algorithm = AWACAlgorithm(SPEC, AWACConfig(hidden_sizes=(4,)))
    assert algorithm.actor.log_std.shape == (1,)
    assert algorithm.actor(torch.zeros(1, 1))[1].item() == -3  # starts in the middle
    for value, bound in ((99.0, 0.0), (-99.0, -6.0)):
        algorithm.actor.log_std.data.fill_(value)
        assert algorithm.actor(torch.zeros(1, 1))[1].item() == bound


def test_weight_decay_is_the_actors_alone() -> None:
    algorithm = AWACAlgorithm(SPEC, AWACConfig(hidden_sizes=(4,), actor_weight_decay=1e-4))
    decays = {
        name: optimizer.param_groups[0]["weight_decay"]
        for name, optimizer in algorithm.optimizers.items()
    }
    assert decays == {"critic": 0, "actor": 1e-4}


def test_discrete_values_are_exact_expectations() -> None:
    algorithm = AWACAlgorithm(DISCRETE, AWACConfig(hidden_sizes=(8,), gamma=0.9), seed=2)
    batch = random_batch(DISCRETE)
    noise = dict.fromkeys(("next", "policy"), torch.zeros(16))
    policy, q_values = algorithm.actor(batch.obs).exp(), algorithm.critic(batch.obs).amin(0)
    taken = q_values[torch.arange(16), batch.actions]
    advantages = taken - (policy * q_values).sum(-1)
    actor = actor_loss(algorithm, batch, noise, algorithm.config)
    assert actor["advantage_mean"].item() == pytest.approx(advantages.mean().item(), abs=1e-6)
    next_policy = algorithm.actor(batch.next_obs).exp()
    values = (next_policy * algorithm.target_critic(batch.next_obs).amin(0)).sum(-1)
    expected = (batch.rewards + 0.9 * (1 - batch.terminations) * values).mean().item()
    critic = critic_loss(algorithm, batch, noise, algorithm.config)
    assert critic["target_q_mean"].item() == pytest.approx(expected, abs=1e-6)


def test_discrete_variant_trains_and_acts() -> None:
    algorithm = AWACAlgorithm(DISCRETE, AWACConfig(hidden_sizes=(8, 8)))
    for _ in range(2):
        terms = algorithm.update(random_batch(DISCRETE))
        assert all(value.isfinite() for value in terms.values())
    for explore in (False, True):
        actions = algorithm.act(torch.randn(50, 2), explore=explore)
        assert actions.shape == (50,)
        assert set(actions.tolist()) <= {0, 1, 2}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"awac_lambda": 0.0}, "awac_lambda: must be > 0"),
        ({"max_advantage_weight": -1.0}, "max_advantage_weight: must be > 0"),
        ({"weight_normalization": "sum"}, "weight_normalization: .*'exp'.*'softmax'"),
        ({"actor_weight_decay": -1e-4}, "actor_weight_decay: must be >= 0"),
    ],
)
def test_bad_options_name_themselves_and_their_range(options: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        AWACConfig(**options)


def bandit(awac_lambda: float) -> float:
    """Data U(-1, 1), reward -(a - 0.5)² in the only state: what the policy finds best."""
    generator = torch.Generator().manual_seed(0)
    actions = 2 * torch.rand(4000, 1, generator=generator) - 1
    obs = torch.zeros(4000, 1)
    rewards = -(actions - 0.5).square().squeeze(1)
    dataset = TransitionDataset(obs, actions, rewards, obs, torch.ones(4000))
    config = AWACConfig(awac_lambda=awac_lambda, hidden_sizes=(32, 32), learning_rate=3e-3)
    algorithm = AWACAlgorithm(SPEC, config)
    for _ in range(800):
        algorithm.update(dataset.sample(128, generator=generator))
    return float(algorithm.act(torch.zeros(1, 1)))


def test_bandit_moves_from_cloning_to_the_best_action_as_lambda_falls() -> None:
    cloned, between, best = bandit(1e3), bandit(1.0), bandit(0.03)
    assert cloned == pytest.approx(0, abs=0.1)
    assert cloned < between < best
    assert best > 0.3  # the cap keeps it from 0.5
