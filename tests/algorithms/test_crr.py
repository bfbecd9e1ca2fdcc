"""What is special to CRR: advantages from draws, the filter, hard copies, acting by the critic."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rl_training.algorithms.crr import (
    CRRAlgorithm,
    CRRConfig,
    actor_loss,
    critic_loss,
    crr_actor_loss,
    crr_loss,
)
from rl_training.config import ConfigError
from rl_training.data import Batch, TransitionDataset
from rl_training.runtime.policy import Policy
from rl_training.spec import ProblemSpec

SPEC = ProblemSpec(1, "continuous", 1, (-1.0,), (1.0,))
DISCRETE = ProblemSpec(2, "discrete", 3)
Q_SAMPLES = torch.tensor([[1.0, 2.0, 0.0, 1.0], [3.0, -1.0, 0.5, 0.5]])
Q_DATA = torch.tensor([1.2, 0.6])
LOG_PROBS = torch.tensor([-1.5, -0.2])


def terms_of(**changes: Any) -> Any:
    arguments = {
        "log_probs": LOG_PROBS,
        "q_values": Q_DATA,
        "q_samples": Q_SAMPLES,
        "advantage_type": "mean",
        "weight_type": "exp",
        "beta": 1.0,
        "max_weight": 20.0,
        **changes,
    }
    return crr_actor_loss(**arguments)


def weights_of(**changes: Any) -> list[float]:
    """Each row's weight is -2 times the loss's gradient in its log-probability."""
    log_probs = LOG_PROBS.clone().requires_grad_()
    terms_of(log_probs=log_probs, **changes)["actor_loss"].backward()
    assert log_probs.grad is not None
    return (-2 * log_probs.grad).tolist()


@pytest.mark.parametrize(("kind", "mean"), [("mean", (0.2 - 0.15) / 2), ("max", (-0.8 - 2.4) / 2)])
def test_advantages_have_the_reference_values(kind: str, mean: float) -> None:
    assert terms_of(advantage_type=kind)["advantage_mean"].item() == pytest.approx(mean, abs=1e-5)


@pytest.mark.parametrize(
    ("changes", "weights"),
    [
        ({"weight_type": "binary"}, [1.0, 0.0]),
        ({"weight_type": "binary", "advantage_type": "max"}, [0.0, 0.0]),
        ({}, [1.221403, 0.860708]),
        ({"beta": 0.5}, [1.491825, 0.740818]),
        ({"beta": 0.05}, [20.0, 0.049787]),
        ({"advantage_type": "max"}, [0.449329, 0.090718]),
    ],
)
def test_weights_have_the_reference_values(changes: Any, weights: list[float]) -> None:
    assert weights_of(**changes) == pytest.approx(weights, abs=1e-5)


@pytest.mark.parametrize(("weight_type", "loss"), [("exp", 1.002123), ("binary", 0.75)])
def test_actor_loss_has_the_reference_value(weight_type: str, loss: float) -> None:
    value = terms_of(weight_type=weight_type)["actor_loss"].item()
    assert value == pytest.approx(loss, abs=1e-5)


def test_an_advantage_of_zero_is_not_cloned() -> None:
    terms = terms_of(q_values=Q_SAMPLES.mean(-1), weight_type="binary")
    assert terms["advantage_weight_max"].item() == 0
    assert terms["advantage_positive"].item() == 0
    assert terms["actor_loss"].item() == 0


def test_weights_take_no_gradient() -> None:
    q_values, q_samples = Q_DATA.clone().requires_grad_(), Q_SAMPLES.clone().requires_grad_()
    log_probs = LOG_PROBS.clone().requires_grad_()
    terms_of(q_values=q_values, q_samples=q_samples, log_probs=log_probs)["actor_loss"].backward()
    assert q_values.grad is None
    assert q_samples.grad is None


def test_probabilities_replace_the_mean_of_draws() -> None:
    probabilities = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.25, 0.25, 0.25, 0.25]])
    mean = terms_of(probabilities=probabilities)["advantage_mean"].item()
    assert mean == pytest.approx((1.2 - 0.9 + 0.6 - 0.75) / 2, abs=1e-6)
    assert weights_of(probabilities=probabilities, advantage_type="max") == pytest.approx(
        [0.449329, 0.090718], abs=1e-5
    )


def test_whole_loss_is_both_halves() -> None:
    terms = crr_loss(
        q_values=torch.stack([Q_DATA, Q_DATA + 1]),
        target_q=Q_DATA,
        log_probs=LOG_PROBS,
        q_samples=Q_SAMPLES,
        advantage_type="mean",
        weight_type="exp",
        beta=1.0,
        max_weight=20.0,
    )
    assert terms["critic_loss"].item() == pytest.approx(1)
    assert terms["actor_loss"].item() == pytest.approx(1.002123, abs=1e-5)


def random_batch(spec: ProblemSpec, rows: int = 16) -> Batch:
    generator = torch.Generator().manual_seed(0)
    obs, next_obs = torch.randn(2, rows, spec.obs_dim, generator=generator)
    if spec.action_kind == "discrete":
        actions = torch.randint(spec.action_dim, (rows,), generator=generator)
    else:
        actions = 2 * torch.rand(rows, spec.action_dim, generator=generator) - 1
    rewards = torch.randn(rows, generator=generator)
    return Batch(obs, actions, rewards, next_obs, (torch.arange(rows) % 4 == 0).float())


def make(spec: ProblemSpec = SPEC, **options: Any) -> CRRAlgorithm:
    return CRRAlgorithm(spec, CRRConfig(**{"hidden_sizes": (8,), **options}), seed=1)


def test_target_draws_from_the_target_policy() -> None:
    algorithm, batch = make(gamma=0.9), random_batch(SPEC)
    for parameter in [*algorithm.actor.parameters(), *algorithm.critic.parameters()]:
        parameter.detach().zero_()
    terms = critic_loss(algorithm, batch, {"next": torch.full((16, 1), 0.3)}, algorithm.config)
    mean, log_std = algorithm.target_actor(batch.next_obs)
    draw = (mean + 0.3 * log_std.exp()).clamp(-1, 1)
    values = algorithm.target_critic(torch.cat([batch.next_obs, draw], -1)).amin(0)
    expected = batch.rewards + 0.9 * (1 - batch.terminations) * values
    assert terms["target_q_mean"].item() == pytest.approx(expected.mean().item(), abs=1e-6)


def test_advantage_draws_from_the_online_policy_and_asks_the_online_critics() -> None:
    algorithm, batch = make(n_action_samples=3), random_batch(SPEC)
    for parameter in [*algorithm.target_actor.parameters(), *algorithm.target_critic.parameters()]:
        parameter.zero_()
    samples = torch.randn(3, 16, 1, generator=torch.Generator().manual_seed(0))
    terms = actor_loss(algorithm, batch, {"samples": samples}, algorithm.config)
    values = [
        algorithm.critic(torch.cat([batch.obs, algorithm.actor.draw(batch.obs, noise)], -1)).amin(0)
        for noise in samples
    ]
    advantages = algorithm.critic(batch.obs, batch.actions).amin(0) - torch.stack(values).mean(0)
    assert terms["advantage_mean"].item() == pytest.approx(advantages.mean().item(), abs=1e-6)


def test_all_actions_of_the_advantage_share_one_forward_pass() -> None:
    algorithm, rows = make(n_action_samples=5), []
    algorithm.critic.register_forward_pre_hook(lambda _, inputs: rows.append(len(inputs[0])))
    noise = {"samples": torch.zeros(5, 16, 1)}
    actor_loss(algorithm, random_batch(SPEC), noise, algorithm.config)
    assert rows == [6 * 16]


@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_targets_are_copied_at_the_interval_or_averaged_at_every_update(kind: str) -> None:
    algorithm, batch = make(target_update=kind), random_batch(SPEC)
    moved, equal = [], []
    for update in range(1, 203):
        before = [value.clone() for value in algorithm.tracked_parameters()[0]]
        algorithm.update(batch)
        targets, sources = algorithm.tracked_parameters()
        if not all(map(torch.equal, before, targets)):
            moved.append(update)
        if all(map(torch.equal, targets, sources)):
            equal.append(update)
    assert moved == ([1, 101, 201] if kind == "hard" else list(range(1, 203)))
    assert equal == ([1, 101, 201] if kind == "hard" else [])


def test_number_of_critics_is_an_option() -> None:
    algorithm = make(num_critics=1)
    algorithm.update(random_batch(SPEC))
    assert algorithm.critic(torch.zeros(5, 2)).shape == (1, 5)


def test_discrete_values_are_exact() -> None:
    algorithm, batch = make(DISCRETE, gamma=0.9), random_batch(DISCRETE)
    noise = {"next": torch.zeros(16), "samples": torch.zeros(4, 16)}
    policy, q_values = algorithm.actor(batch.obs).exp(), algorithm.critic(batch.obs).amin(0)
    taken = q_values[torch.arange(16), batch.actions]
    for kind, values in (("mean", (policy * q_values).sum(-1)), ("max", q_values.amax(-1))):
        config = CRRConfig(advantage_type=kind)  # type: ignore[arg-type]
        terms = actor_loss(algorithm, batch, noise, config)
        assert terms["advantage_mean"].item() == pytest.approx((taken - values).mean().item())
    next_policy = algorithm.target_actor(batch.next_obs).exp()
    values = (next_policy * algorithm.target_critic(batch.next_obs).amin(0)).sum(-1)
    expected = (batch.rewards + 0.9 * (1 - batch.terminations) * values).mean().item()
    terms = critic_loss(algorithm, batch, noise, algorithm.config)
    assert terms["target_q_mean"].item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
def test_discrete_variant_trains_and_acts(weighted: bool) -> None:
    algorithm = make(DISCRETE, critic_weighted_policy=weighted)
    for _ in range(2):
        terms = algorithm.update(random_batch(DISCRETE))
        assert all(value.isfinite() for value in terms.values())
    for explore in (False, True):
        actions = algorithm.act(torch.randn(50, 2), explore=explore)
        assert actions.shape == (50,)
        assert set(actions.tolist()) <= {0, 1, 2}


class Fixed(torch.nn.Module):
    """A critic of two equal members that gives each draw its value of the reference."""

    def forward(self, obs: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        return Q_SAMPLES[0].unsqueeze(-1).expand(2, len(actions), len(obs))


def test_critic_weighted_policy_chooses_by_the_softmax_of_values() -> None:
    algorithm = make(critic_weighted_policy=True)
    algorithm.critic = Fixed()  # type: ignore[assignment]
    # a policy of four actions: the draws of one state, told apart by their order
    algorithm.actor.draw = lambda obs, noise: torch.arange(4.0)[:, None, None].expand(noise.shape)
    generator = torch.Generator().manual_seed(0)
    chosen = algorithm.act(torch.zeros(40_000, 1), generator=generator).long().flatten()
    shares = torch.bincount(chosen, minlength=4) / len(chosen)
    reference = [0.196612, 0.534447, 0.072329, 0.196612]
    assert Q_SAMPLES[0].softmax(-1).tolist() == pytest.approx(reference, abs=1e-5)
    assert shares.tolist() == pytest.approx(reference, abs=0.01)


def test_policy_is_its_mode_unless_the_critic_weighs() -> None:
    obs = torch.ones(1)
    plain, weighted = make(), make(critic_weighted_policy=True)
    expected = plain.actor.mode(obs[None]).item()
    assert plain.numpy_policy() is not None
    assert weighted.numpy_policy() is None
    assert Policy(plain).predict(obs).item() == pytest.approx(expected, abs=1e-6)
    policy = Policy(weighted)
    assert len({policy.predict(obs).item() for _ in range(8)}) > 1
    assert all(abs(policy.predict(obs).item()) <= 1 for _ in range(8))


def test_acting_with_an_own_generator_leaves_the_update_stream_alone() -> None:
    algorithm = make(critic_weighted_policy=True)
    before = algorithm.generator.get_state()
    Policy(algorithm).predict(torch.ones(1))
    assert torch.equal(algorithm.generator.get_state(), before)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beta": 0.0}, "beta: must be > 0"),
        ({"n_action_samples": 0}, "n_action_samples: must be >= 1"),
        ({"max_weight": 0.0}, "max_weight: must be > 0"),
        ({"num_critics": 0}, "num_critics: must be >= 1"),
        ({"target_update_interval": 0}, "target_update_interval: must be >= 1"),
        ({"advantage_type": "median"}, "advantage_type: .*'mean'.*'max'"),
        ({"weight_type": "linear"}, "weight_type: .*'exp'.*'binary'"),
        ({"target_update": "never"}, "target_update: .*'hard'.*'soft'"),
    ],
)
def test_bad_options_name_themselves_and_their_range(options: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CRRConfig(**options)


def bandit(**options: Any) -> float:
    """Data U(-1, 1), reward -(a - 0.5)² in the only state: what the policy finds best."""
    generator = torch.Generator().manual_seed(0)
    actions = 2 * torch.rand(4000, 1, generator=generator) - 1
    obs = torch.zeros(4000, 1)
    rewards = -(actions - 0.5).square().squeeze(1)
    dataset = TransitionDataset(obs, actions, rewards, obs, torch.ones(4000))
    algorithm = make(hidden_sizes=(32, 32), learning_rate=3e-3, **options)
    for _ in range(800):
        algorithm.update(dataset.sample(128, generator=generator))
    return float(algorithm.act(torch.zeros(1, 1)))


def test_bandit_moves_from_cloning_to_the_best_action_as_beta_falls() -> None:
    cloned, between, best = bandit(beta=1e3), bandit(beta=1.0), bandit(beta=0.03)
    assert cloned == pytest.approx(0, abs=0.1)
    assert cloned < between < best
    assert best == pytest.approx(0.5, abs=0.12)


def test_the_binary_filter_also_finds_the_best_action() -> None:
    assert bandit(weight_type="binary") == pytest.approx(0.5, abs=0.12)
