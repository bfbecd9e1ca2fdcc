"""What is special to CQL: reference values, who moves what, options that add or drop a network."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rl_training.algorithms.cql import (
    CQLAlgorithm,
    CQLConfig,
    GreedyActor,
    cql_actor_loss,
    cql_critic_loss,
    cql_loss,
    cql_multiplier_loss,
    cql_temperature_loss,
    critic_loss,
    logged_q_and_gaps,
)
from rl_training.algorithms.targets import calibrated, conservative_gap, max_backup
from rl_training.config import ConfigError, DatasetError
from rl_training.data import Batch, TransitionDataset
from rl_training.models import SquashedGaussianActor, squashed_gaussian_log_prob
from rl_training.models.distributions import gaussian_log_prob, tanh_log_det
from rl_training.runtime import resume, train
from rl_training.runtime.policy import Policy
from rl_training.spec import ProblemSpec

SPEC = ProblemSpec(3, "continuous", 2, (-1.0, -1.0), (1.0, 1.0))
CHOICES = ProblemSpec(3, "discrete", 4)


def make(spec: ProblemSpec = SPEC, **options: Any) -> CQLAlgorithm:
    samples = {"num_cql_samples": 3} if spec.action_kind == "continuous" else {}
    values = {"hidden_sizes": (8, 8), **samples, **options}
    return CQLAlgorithm(spec, CQLConfig(**values), seed=1)


def random_batch(spec: ProblemSpec = SPEC, rows: int = 16) -> Batch:
    generator = torch.Generator().manual_seed(0)
    obs, next_obs = torch.randn(2, rows, spec.obs_dim, generator=generator)
    actions = 2 * torch.rand(rows, spec.action_dim, generator=generator) - 1
    if spec.action_kind == "discrete":
        actions = actions.argmax(-1)
    rewards = torch.randn(rows, generator=generator)
    return Batch(obs, actions, rewards, next_obs, (torch.arange(rows) % 4 == 0).float())


def noise_for(batch: Batch, samples: int = 3, backups: int = 1) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(5)
    shape = (samples, *batch.actions.shape)
    return {
        "uniform": 2 * torch.rand(shape, generator=generator) - 1,
        "current": torch.randn(shape, generator=generator),
        "next": torch.randn(shape, generator=generator),
        "backup": torch.randn(backups, *shape[1:], generator=generator),
        "policy": torch.randn(shape[1:], generator=generator),
    }


# -- reference values: two states, two actions of each source, two dimensions ---------------------

Q_DATA = torch.tensor([[1.8, 0.4]])  # (critics, batch)
SAMPLED_Q = torch.tensor(  # (critics, samples, batch): uniform, current, next
    [[[1.0, 0.5], [-1.0, 2.0], [2.0, 1.0], [1.5, 0.0], [1.2, -0.5], [0.8, 0.3]]]
)
UNIFORM = [[2 * math.log(0.5)] * 2] * 2
LOG_DENSITIES = torch.tensor([*UNIFORM, [-0.7, 0.1], [0.4, -1.0], [0.2, 0.6], [-0.3, 0.9]])


def reference_gaps(**changes: Any) -> Tensor:
    values = {"q_values": Q_DATA, "sampled_q": SAMPLED_Q, "log_densities": LOG_DENSITIES}
    return conservative_gap(**{**values, **changes})


def test_gap_with_importance_sampling_has_the_reference_value() -> None:
    gaps = reference_gaps()
    assert (gaps + Q_DATA)[0].tolist() == pytest.approx([3.582157, 3.742673], abs=1e-5)
    assert gaps.mean().item() == pytest.approx(2.562415, abs=1e-5)


def test_gap_without_importance_sampling_counts_the_logged_action() -> None:
    gaps = reference_gaps(log_densities=None)
    assert gaps.mean().item() == pytest.approx(1.932194, abs=1e-5)


def test_calibrated_values_have_the_reference_gap() -> None:
    """The uniform actions' values stay below the returns."""
    bounded = calibrated(SAMPLED_Q, torch.tensor([2.2, 0.2]), num_uniform=2)
    assert torch.equal(bounded[:, :2], SAMPLED_Q[:, :2])
    gaps = reference_gaps(sampled_q=bounded)
    assert (gaps + Q_DATA)[0].tolist() == pytest.approx([4.027848, 3.764682], abs=1e-5)
    assert gaps.mean().item() == pytest.approx(2.796265, abs=1e-5)


def test_calibration_raises_the_gap_and_needs_returns() -> None:
    batch, algorithm = random_batch(), make(cal_ql=True)
    noise = noise_for(batch)
    with pytest.raises(DatasetError, match="with_returns"):
        critic_loss(algorithm, batch, noise, algorithm.config)
    gaps = [
        critic_loss(
            algorithm,
            replace(batch, returns=torch.full_like(batch.rewards, value)),
            noise,
            algorithm.config,
        )["conservative_gap"].item()
        for value in (-torch.inf, 50.0)
    ]
    plain = make()
    expected = critic_loss(plain, batch, noise, plain.config)["conservative_gap"].item()
    assert gaps[0] == pytest.approx(expected, abs=1e-6)
    assert gaps[1] > gaps[0] + 10


def test_gap_has_a_temperature() -> None:
    soft_maximum = reference_gaps(temperature=2.0) + Q_DATA
    assert soft_maximum[0].tolist() == pytest.approx([5.202883, 5.057754], abs=1e-5)


def test_critic_loss_adds_every_critics_own_gap() -> None:
    gaps = torch.cat([reference_gaps(), reference_gaps() + 1])
    q_values, target_q = torch.tensor([[1.0, 2.0], [3.0, 2.0]]), torch.tensor([1.0, 1.0])
    terms = cql_critic_loss(q_values=q_values, target_q=target_q, gaps=gaps, cql_alpha=5.0)
    assert terms["td_loss"].item() == pytest.approx(3.0)
    expected = 3.0 + 5 * (2.562415 + 3.562415)
    assert terms["critic_loss"].item() == pytest.approx(expected, abs=1e-4)


def test_multiplier_has_the_reference_value_and_ascends_on_the_mean_of_both_critics() -> None:
    log_multiplier = torch.tensor(1.0, requires_grad=True)
    lagrange = {"cql_alpha": 5.0, "target_gap": 0.8}
    gaps = reference_gaps()
    critic = cql_critic_loss(
        q_values=torch.zeros(1, 2),
        target_q=torch.zeros(2),
        gaps=gaps,
        multiplier=log_multiplier.exp(),
        **lagrange,
    )
    assert critic["critic_loss"].item() == pytest.approx(23.953702, abs=1e-4)
    both = torch.cat([gaps + 1, gaps - 1]).requires_grad_()
    loss = cql_multiplier_loss(multiplier=log_multiplier.exp(), gaps=both, **lagrange)
    assert loss["multiplier_loss"].item() == pytest.approx(-23.953702, abs=1e-4)
    loss["multiplier_loss"].backward()
    assert both.grad is None
    assert log_multiplier.grad is not None
    assert log_multiplier.grad.item() < 0  # a gap above the target raises the multiplier


def test_multiplier_is_bounded() -> None:
    multiplier = make(cql_target_gap=1.0).multiplier
    with torch.no_grad():
        multiplier.log.fill_(20.0)
    assert multiplier().item() == pytest.approx(1e6)


def test_max_backup_takes_the_best_sample_of_the_least_critic() -> None:
    first = [[1.0, 3.0, 2.0], [0.0, -1.0, 0.5]]
    second = [[2.0, 2.5, 1.0], [0.2, -2.0, 0.1]]
    next_q = torch.tensor([first, second]).transpose(1, 2)  # (critics, samples, batch)
    log_probs = torch.arange(6.0).reshape(3, 2)
    plain = max_backup(next_q=next_q, log_probs=log_probs, alpha=0.0)
    assert plain.tolist() == pytest.approx([2.5, 0.1], abs=1e-5)
    soft = max_backup(next_q=next_q, log_probs=log_probs, alpha=0.1)
    assert soft.tolist() == pytest.approx([2.5 - 0.2, 0.1 - 0.5], abs=1e-5)


def test_discrete_gap_has_the_reference_value() -> None:
    q_of_all = torch.tensor([[1.0, 2.0, 3.0], [0.0, -1.0, 0.5]])
    algorithm = make(ProblemSpec(3, "discrete", 3))
    algorithm.critic = torch.nn.Identity()  # its observations are its values
    batch = Batch(q_of_all, torch.tensor([1, 0]), torch.zeros(2), q_of_all, torch.ones(2))
    q_values, gaps = logged_q_and_gaps(algorithm, batch, {}, algorithm.config)
    assert q_values.tolist() == [[2.0, 0.0]]
    assert gaps.mean().item() == pytest.approx(1.255868, abs=1e-5)


def test_actor_loss_takes_the_least_critic_and_leaves_the_temperature_alone() -> None:
    alpha = torch.tensor(0.2, requires_grad=True)
    log_probs = torch.tensor([-1.0, 0.2, 0.6], requires_grad=True)
    q_values = torch.tensor([[4.0, 3.0, 2.0], [5.0, 2.5, 1.0]])
    loss = cql_actor_loss(q_values=q_values, log_probs=log_probs, alpha=alpha)["actor_loss"]
    assert loss.item() == pytest.approx(-2.513333, abs=1e-5)
    loss.backward()
    assert alpha.grad is None
    assert log_probs.grad is not None


def test_temperature_loss_has_the_reference_value_and_leaves_the_actor_alone() -> None:
    log_alpha = torch.tensor(0.2).log().requires_grad_()
    log_probs = torch.tensor([-1.0, 0.2, 0.6], requires_grad=True)
    terms = cql_temperature_loss(log_alpha=log_alpha, log_probs=log_probs, target_entropy=-2.0)
    assert terms["temperature_loss"].item() == pytest.approx(-3.326172, abs=1e-5)
    terms["temperature_loss"].backward()
    assert log_probs.grad is None
    assert log_alpha.grad is not None
    assert log_alpha.grad.item() == pytest.approx(2.066667, abs=1e-5)  # α falls: enough entropy


def test_whole_loss_is_its_parts() -> None:
    terms = cql_loss(
        q_values=torch.zeros(1, 2),
        target_q=torch.ones(2),
        gaps=reference_gaps(),
        policy_q_values=torch.tensor([[4.0, 3.0, 2.0], [5.0, 2.5, 1.0]]),
        log_probs=torch.tensor([-1.0, 0.2, 0.6]),
        log_alpha=torch.tensor(0.2).log(),
        cql_alpha=5.0,
        target_entropy=-2.0,
    )
    assert terms["critic_loss"].item() == pytest.approx(1 + 5 * 2.562415, abs=1e-4)
    assert terms["actor_loss"].item() == pytest.approx(-2.513333, abs=1e-5)
    assert terms["temperature_loss"].item() == pytest.approx(-3.326172, abs=1e-5)


# -- the squashed Gaussian ------------------------------------------------------------------------


def test_squashed_log_density_has_the_reference_value() -> None:
    mean, log_std = torch.tensor([[0.1, -0.4]]), torch.tensor([[-1.0, 0.3]])
    pre_tanh = mean + log_std.exp() * torch.tensor([[0.5, -1.2]])
    assert pre_tanh[0].tolist() == pytest.approx([0.283940, -2.019831], abs=1e-5)
    assert pre_tanh.tanh()[0].tolist() == pytest.approx([0.276547, -0.965402], abs=1e-5)
    plain = gaussian_log_prob(mean, log_std, pre_tanh)
    assert plain.item() == pytest.approx(-1.982877, abs=1e-5)
    squashed = squashed_gaussian_log_prob(mean, log_std, pre_tanh).item()
    assert squashed == pytest.approx(0.784951, abs=1e-5)
    assert squashed - 2 * math.log(2) == pytest.approx(-0.601343, abs=1e-5)  # in units of ±2


def test_squashing_is_exact_where_tanh_saturates() -> None:
    assert tanh_log_det(torch.tensor(8.0)).item() == pytest.approx(-14.613706, abs=1e-5)
    for value in (20.0, -20.0):
        pre_tanh = torch.tensor([[value]], requires_grad=True)
        zero = torch.zeros(1, 1)
        density = squashed_gaussian_log_prob(zero, zero, pre_tanh)
        (gradient,) = torch.autograd.grad(density.sum(), pre_tanh)
        assert density.isfinite().all()
        assert gradient.isfinite().all()


def test_logged_actions_at_the_bounds_have_a_density_and_a_gradient() -> None:
    actor = SquashedGaussianActor(3, 2, (8,))
    actions = torch.tensor([[1.0, -1.0], [1.0, 1.0]])
    density = actor.log_prob(torch.ones(2, 3), actions)
    gradients = torch.autograd.grad(density.sum(), list(actor.parameters()))
    assert density.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in gradients)


# -- the networks ---------------------------------------------------------------------------------


def test_one_pass_equals_separate_evaluations() -> None:
    algorithm, batch = make(), random_batch()
    noise = noise_for(batch)
    q_values, gaps = logged_q_and_gaps(algorithm, batch, noise, algorithm.config)
    torch.testing.assert_close(q_values, algorithm.critic(batch.obs, batch.actions))
    current, current_log_probs = algorithm.actor.draw(batch.obs, noise["current"])
    following, next_log_probs = algorithm.actor.draw(batch.next_obs, noise["next"])
    scores = []
    for sample in range(3):
        for actions, log_density in (
            (noise["uniform"][sample], torch.full((16,), 2 * math.log(0.5))),
            (current[sample], current_log_probs[sample]),
            (following[sample], next_log_probs[sample]),  # drawn at s', evaluated at s
        ):
            q = algorithm.critic(torch.cat([batch.obs, actions], -1))
            scores.append(q - log_density)
    expected = torch.stack(scores).logsumexp(0) - q_values
    torch.testing.assert_close(gaps, expected, atol=1e-5, rtol=1e-5)


def test_critic_loss_calls_the_critics_once() -> None:
    algorithm, batch = make(), random_batch()
    rows: list[int] = []
    algorithm.critic.register_forward_hook(lambda *call: rows.append(call[1][1].shape[0] * 16))
    critic_loss(algorithm, batch, noise_for(batch), algorithm.config)
    assert rows == [(3 * 3 + 1) * 16]


def test_the_gap_takes_no_gradient_in_the_actor() -> None:
    algorithm, batch = make(), random_batch()
    loss = critic_loss(algorithm, batch, noise_for(batch), algorithm.config)["critic_loss"]
    parameters = [*algorithm.actor.parameters(), *algorithm.temperature.parameters()]
    assert torch.autograd.grad(loss, parameters, allow_unused=True) == (None,) * len(parameters)


def test_only_the_critic_loss_sees_the_target_critics() -> None:
    algorithm, batch = make(), random_batch()
    noise, shared = noise_for(batch), {"shared": {"log_probs": torch.tensor(-0.5)}}

    def values() -> dict[str, float]:
        return {
            name: loss(
                algorithm,
                batch,
                noise,
                algorithm.config,
                **(shared if name == "temperature" else {}),
            )[f"{name}_loss"].item()
            for name, loss in algorithm.losses.items()
        }

    before = values()
    with torch.no_grad():
        for parameter in algorithm.target_critic.parameters():
            parameter += 0.1
    after = values()
    assert {name for name in before if before[name] != after[name]} == {"critic"}


@pytest.mark.parametrize("entropy", [False, True])
def test_entropy_is_in_the_target_only_when_asked_for(entropy: bool) -> None:
    algorithm = make(backup_entropy=entropy, alpha=0.5)
    batch = random_batch()
    noise = noise_for(batch)
    terms = critic_loss(algorithm, batch, noise, algorithm.config)
    actions, log_probs = algorithm.actor.draw(batch.next_obs, noise["backup"][0])
    values = algorithm.target_critic(batch.next_obs, actions).amin(0)
    values = values - (0.5 * log_probs if entropy else 0)
    expected = (batch.rewards + 0.99 * (1 - batch.terminations) * values).mean()
    assert terms["target_q_mean"].item() == pytest.approx(expected.item(), abs=1e-5)


@pytest.mark.parametrize(
    ("spec", "options", "networks"),
    [
        (SPEC, {}, ["critic", "actor", "temperature"]),
        (SPEC, {"alpha": 0.2}, ["critic", "actor"]),
        (SPEC, {"alpha": 0.0}, ["critic", "actor"]),
        (SPEC, {"cql_target_gap": 5.0}, ["multiplier", "critic", "actor", "temperature"]),
        (SPEC, {"max_target_backup": True}, ["critic", "actor", "temperature"]),
        (SPEC, {"importance_sampling": False}, ["critic", "actor", "temperature"]),
        (SPEC, {"cql_clip_diff_min": -1.0}, ["critic", "actor", "temperature"]),
        (CHOICES, {}, ["critic"]),
    ],
    ids=str,
)
def test_options_choose_which_networks_train(
    spec: ProblemSpec, options: dict[str, Any], networks: list[str]
) -> None:
    algorithm, batch = make(spec, **options), random_batch(spec)
    assert list(algorithm.losses) == list(algorithm.optimizers) == networks
    before = {name: value.clone() for name, value in algorithm.state_dict().items()}
    for _ in range(2):
        assert all(value.isfinite() for value in algorithm.update(batch).values())
    after = algorithm.state_dict()
    moved = {name.split(".")[0] for name in after if not torch.equal(before[name], after[name])}
    assert moved == {*networks, "target_critic"}


def test_gaps_have_a_lower_bound() -> None:
    algorithm, batch = make(cql_clip_diff_min=100.0), random_batch()
    _, gaps = logged_q_and_gaps(algorithm, batch, noise_for(batch), algorithm.config)
    assert gaps.min() == 100


def test_temperature_falls_while_entropy_is_above_its_target() -> None:
    found = []
    for target in (-50.0, 50.0):
        algorithm = make(target_entropy=target, temperature_learning_rate=0.01)
        for _ in range(5):
            algorithm.update(random_batch())
        found.append(algorithm.temperature().item())
    assert found[0] < 1 < found[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cql_alpha": -1.0}, "cql_alpha: must be >= 0, got -1.0"),
        ({"num_cql_samples": 0}, "num_cql_samples: must be >= 1, got 0"),
        ({"cql_temperature": 0}, "cql_temperature: must be > 0, got 0"),
        ({"alpha": -0.1}, "alpha: must be >= 0, got -0.1"),
        ({"alpha": "automatic"}, "alpha: expected a number or one of 'auto', got 'automatic'"),
        ({"alpha": "0.5"}, "alpha: expected a number"),
        ({"target_entropy": "low"}, "target_entropy: expected a number"),
        ({"num_cql_sample": 3}, "did you mean 'num_cql_samples'"),
    ],
)
def test_bad_options_fail_fast(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CQLConfig(**options)


# -- discrete actions -----------------------------------------------------------------------------


def test_discrete_critic_has_one_owner_and_its_actor_follows_it() -> None:
    algorithm, batch = make(CHOICES, learning_rate=0.1), random_batch(CHOICES)
    assert isinstance(algorithm.actor, GreedyActor)
    assert {name.split(".")[0] for name in algorithm.state_dict()} == {"critic", "target_critic"}
    policy = Policy(algorithm)
    for _ in range(2):
        algorithm.update(batch)
        best = algorithm.critic(batch.obs).argmax(-1)
        assert torch.equal(algorithm.act(batch.obs), best)
        assert torch.equal(algorithm.act(batch.obs, explore=True), best)
        assert policy.predict(batch.obs).tolist() == best.tolist()
        assert int(policy.predict(batch.obs[0])) == best[0]
    restored = make(CHOICES)
    restored.load_training_state(algorithm.training_state())
    assert torch.equal(restored.act(batch.obs), algorithm.act(batch.obs))


def test_discrete_target_is_that_of_double_dqn() -> None:
    algorithm, batch = make(CHOICES), random_batch(CHOICES)
    with torch.no_grad():
        for parameter in algorithm.target_critic.parameters():
            parameter.neg_()
    choice = algorithm.critic(batch.next_obs).argmax(-1, keepdim=True)
    values = algorithm.target_critic(batch.next_obs).gather(-1, choice).squeeze(-1)
    expected = (batch.rewards + 0.99 * (1 - batch.terminations) * values).mean()
    terms = critic_loss(algorithm, batch, {}, algorithm.config)
    assert terms["target_q_mean"].item() == pytest.approx(expected.item(), abs=1e-6)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_discrete_choices_are_explored_with_chance_epsilon(epsilon: float) -> None:
    """A uniform draw is the best choice, too, in one of four cases."""
    algorithm = make(CHOICES, epsilon=epsilon)
    obs = np.random.default_rng(0).standard_normal((3_000, CHOICES.obs_dim), np.float32)
    best = algorithm.best_actions(obs)
    together = algorithm.explore(obs, np.random.default_rng(1), 0.5)
    rng = np.random.default_rng(2)
    alone = np.concatenate([algorithm.explore(row[None], rng, 0.5) for row in obs])
    for actions in (together, alone):
        assert set(actions.tolist()) <= set(range(CHOICES.action_dim))
        differs = epsilon * (1 - 1 / CHOICES.action_dim)
        assert (actions != best).mean() == pytest.approx(differs, abs=0.03)
    assert CQLConfig().epsilon > 0


def test_epsilon_is_refused_where_the_policy_is_drawn_from() -> None:
    with pytest.raises(ConfigError, match="epsilon: has no part in cql for continuous actions"):
        make(epsilon=0.3)


def test_options_without_a_part_in_the_discrete_form_are_refused() -> None:
    with pytest.raises(
        ConfigError, match="cql_target_gap: has no part in cql for discrete actions"
    ):
        make(CHOICES, cql_target_gap=5.0)


@pytest.mark.parametrize("options", [{"cql_target_gap": 1.0}, {"alpha": 0.1}], ids=str)
def test_resume_with_other_networks_is_exact(options: dict[str, Any], small_config: Any) -> None:
    kwargs = {"num_cql_samples": 2, **options}
    whole = train(small_config("cql", total_timesteps=20, algo_kwargs=kwargs))
    half = train(small_config("cql", total_timesteps=10, algo_kwargs=kwargs))
    rest = resume(half.run_dir, total_timesteps=20)
    assert rest.metrics["train/critic_loss"] == whole.metrics["train/critic_loss"]


# -- learning -------------------------------------------------------------------------------------


def bandit(rows: int = 2000) -> TransitionDataset:
    """One state, actions U(-1, 0.5), reward -4 (a - 0.3)², over at once."""
    generator = torch.Generator().manual_seed(0)
    actions = 1.5 * torch.rand(rows, 1, generator=generator) - 1
    obs = torch.zeros(rows, 1)
    rewards = -4 * (actions - 0.3).square().squeeze(1)
    return TransitionDataset(obs, actions, rewards, obs, torch.ones(rows))


def train_on_bandit(**options: Any) -> CQLAlgorithm:
    values = {"hidden_sizes": (32, 32), "learning_rate": 3e-3, "num_cql_samples": 4, "alpha": 0.02}
    config = CQLConfig(**{**values, "actor_learning_rate": 3e-3, **options})
    algorithm = CQLAlgorithm(ProblemSpec(1, "continuous", 1, (-1.0,), (1.0,)), config)
    dataset, generator = bandit(), torch.Generator().manual_seed(0)
    for _ in range(400):
        algorithm.update(dataset.sample(128, generator=generator))
    return algorithm


def test_bandit_the_gap_keeps_the_policy_where_the_data_is() -> None:
    logged, unseen = torch.tensor([[0.0, 0.3], [0.0, 0.9]])
    free, conservative = train_on_bandit(cql_alpha=0.0), train_on_bandit(cql_alpha=0.3)
    q_of_best, q_of_unseen = conservative.critic(torch.stack([logged, unseen])).mean(0).tolist()
    assert q_of_unseen < q_of_best - 2
    assert conservative.act(torch.zeros(1, 1)).item() == pytest.approx(0.3, abs=0.15)
    assert free.act(torch.zeros(1, 1)).item() > 0.45  # where nobody has been, the critics err
