"""What is special to ReBRAC: both penalties, the smallest critic, and actions the data took next."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from rl_training.algorithms.rebrac import (
    ReBRACAlgorithm,
    ReBRACConfig,
    actor_loss,
    critic_loss,
    rebrac_actor_loss,
    rebrac_critic_loss,
    rebrac_loss,
    squared_distance,
)
from rl_training.algorithms.targets import smooth_actions, td_target
from rl_training.config import ConfigError, DatasetError
from rl_training.data import Batch, TransitionDataset
from rl_training.runtime import TrainConfig
from rl_training.runtime.prepare import prepare
from rl_training.spec import ProblemSpec

SPEC = ProblemSpec(3, "continuous", 2, (-1.0, -1.0), (1.0, 1.0))
POLICY_NEXT = torch.tensor([[0.5, -0.5], [1.0, 0.0]])
DATA_NEXT = torch.tensor([[0.3, -0.1], [0.6, 0.2]])


def test_penalty_is_a_sum_over_dimensions() -> None:
    assert squared_distance(POLICY_NEXT, DATA_NEXT).tolist() == pytest.approx([0.2, 0.2])


@pytest.mark.parametrize(
    ("weight", "target", "loss"),
    [(0.01, [9.908020, 3.458020], 0.668243), (0.5, [9.811, 3.361], 0.616042)],
)
def test_target_and_critic_loss_have_the_reference_values(
    weight: float, target: list[float], loss: float
) -> None:
    target_q = td_target(
        rewards=torch.tensor([1.0, -0.5]),
        terminations=torch.zeros(2),
        next_values=torch.tensor([9.0, 4.0]) - weight * squared_distance(POLICY_NEXT, DATA_NEXT),
        gamma=0.99,
    )
    assert target_q.tolist() == pytest.approx(target, abs=1e-5)
    terms = rebrac_critic_loss(q_values=torch.tensor([[9.0, 3.0], [10.0, 4.0]]), target_q=target_q)
    assert terms["critic_loss"].item() == pytest.approx(loss, abs=1e-5)


def actor_reference() -> dict[str, Any]:
    return {
        "policy_actions": torch.tensor([[0.1, 0.1], [0.4, -0.4]]),
        "actions": torch.tensor([[0.0, 0.3], [0.5, -0.5]]),
        "actor_bc_weight": 0.05,
    }


@pytest.mark.parametrize(
    ("normalize_q", "scale", "loss"), [(True, 0.25, -0.498250), (False, 1.0, -1.998250)]
)
def test_actor_loss_has_the_reference_value(normalize_q: bool, scale: float, loss: float) -> None:
    q_values = torch.tensor([6.0, -2.0])
    terms = rebrac_actor_loss(q_values=q_values, normalize_q=normalize_q, **actor_reference())
    assert terms["bc_loss"].item() == pytest.approx((0.05 + 0.02) / 2, abs=1e-6)
    assert terms["q_scale"].item() == pytest.approx(scale)
    assert terms["actor_loss"].item() == pytest.approx(loss, abs=1e-5)


def test_actor_q_weight_scales_the_value_only() -> None:
    q_values = torch.tensor([6.0, -2.0])
    terms = rebrac_actor_loss(q_values=q_values, actor_q_weight=2.0, **actor_reference())
    assert terms["actor_loss"].item() == pytest.approx(0.05 * 0.035 - 2 * 0.5, abs=1e-5)


def test_the_scale_of_q_takes_no_gradient() -> None:
    q_values = torch.tensor([6.0, -2.0], requires_grad=True)
    rebrac_actor_loss(q_values=q_values, **actor_reference())["actor_loss"].backward()
    assert q_values.grad is not None
    assert q_values.grad.tolist() == pytest.approx([-0.125] * 2)  # -λ / batch


def test_whole_loss_is_both_halves() -> None:
    terms = rebrac_loss(
        q_values=torch.tensor([[9.0, 3.0], [10.0, 4.0]]),
        target_q=torch.tensor([9.908020, 3.458020]),
        policy_q_values=torch.tensor([6.0, -2.0]),
        **actor_reference(),
    )
    assert terms["critic_loss"].item() == pytest.approx(0.668243, abs=1e-5)
    assert terms["actor_loss"].item() == pytest.approx(-0.498250, abs=1e-5)


def make(**options: Any) -> ReBRACAlgorithm:
    return ReBRACAlgorithm(SPEC, ReBRACConfig(**{"hidden_sizes": (16, 16), **options}), seed=1)


def batch_of(dataset: TransitionDataset, rows: int = 64) -> Batch:
    generator = torch.Generator().manual_seed(0)
    return dataset.with_valid_next_actions().sample(rows, generator=generator)


def test_networks_start_as_in_the_paper() -> None:
    algorithm = ReBRACAlgorithm(SPEC, ReBRACConfig())
    assert algorithm.config.hidden_sizes == (256, 256, 256)
    *hidden, last = algorithm.actor.net.layers
    assert all(torch.all(layer.bias == torch.tensor(0.1)) for layer in hidden)
    assert 5e-4 < last.weight.abs().max() <= 1e-3
    assert last.bias.abs().max() <= 1e-3
    *biases, last_bias = algorithm.critic.biases
    assert all(torch.all(bias == torch.tensor(0.1)) for bias in biases)
    assert 1.5e-3 < algorithm.critic.weights[-1].abs().max() <= 3e-3
    assert last_bias.abs().max() <= 3e-3
    assert len(algorithm.critic.scales) == 3
    assert not make(critic_layer_norm=False).critic.scales


def test_penalty_takes_the_smoothed_and_clipped_action_inside_discount_and_mask(
    dataset: TransitionDataset,
) -> None:
    algorithm, batch = make(critic_bc_weight=0.5, gamma=0.9), batch_of(dataset)
    noise = {"smoothing": torch.full((64, 2), 9.0)}  # clipped to 0.5
    terms = critic_loss(algorithm, batch, noise, algorithm.config)
    smoothed = (algorithm.target_actor(batch.next_obs) + 0.5).clamp(-1, 1)
    torch.testing.assert_close(
        smoothed,
        smooth_actions(
            algorithm.target_actor(batch.next_obs),
            noise["smoothing"],
            policy_noise=0.2,
            noise_clip=0.5,
        ),
    )
    assert batch.next_actions is not None
    penalty = (smoothed - batch.next_actions).square().sum(-1)
    q_values = algorithm.target_critic(torch.cat([batch.next_obs, smoothed], -1)).amin(0)
    alive = 1 - batch.terminations
    expected = batch.rewards + 0.9 * alive * (q_values - 0.5 * penalty)
    assert terms["target_q_mean"].item() == pytest.approx(expected.mean().item(), abs=1e-5)
    assert terms["next_bc_loss"].item() == pytest.approx((alive * penalty).mean().item(), abs=1e-5)


def test_next_actions_of_terminal_rows_do_not_matter(dataset: TransitionDataset) -> None:
    algorithm, batch = make(), batch_of(dataset, 256)
    assert batch.terminations.sum() > 0
    assert batch.next_actions is not None
    noise = {"smoothing": torch.zeros(256, 2)}
    ended = batch.terminations.bool().unsqueeze(1)
    other = replace(batch, next_actions=torch.where(ended, 1e6, batch.next_actions))
    first, second = (critic_loss(algorithm, b, noise, algorithm.config) for b in (batch, other))
    assert first["critic_loss"].item() == pytest.approx(second["critic_loss"].item())
    assert second["next_bc_loss"].isfinite()


def test_actor_uses_the_smallest_critic(dataset: TransitionDataset) -> None:
    algorithm, batch = make(), batch_of(dataset)
    for _ in range(20):  # apart from each other
        algorithm.update(batch)
    terms = actor_loss(algorithm, batch, {}, algorithm.config)
    q_values = algorithm.critic(torch.cat([batch.obs, algorithm.actor(batch.obs)], -1))
    assert terms["policy_q_mean"].item() == pytest.approx(q_values.amin(0).mean().item(), abs=1e-6)
    assert q_values.amin(0).mean() < q_values.mean(1).min()


def test_actor_and_targets_stand_still_between_delayed_steps(dataset: TransitionDataset) -> None:
    algorithm, batch = make(policy_delay=3), batch_of(dataset)

    def still() -> list[Tensor]:
        parts = (algorithm.actor, algorithm.target_actor, algorithm.target_critic)
        return [parameter.clone() for part in parts for parameter in part.parameters()]

    moved = []
    for _ in range(6):
        before = still()
        algorithm.update(batch)
        moved.append(not all(map(torch.equal, before, still())))
    assert moved == [False, False, True, False, False, True]


def prepared(dataset: TransitionDataset, **options: Any) -> TransitionDataset:
    kwargs = {"action_low": -1.0, "action_high": 1.0, **options}
    return prepare(TrainConfig(algo="rebrac", algo_kwargs=kwargs), dataset).dataset.learning


def test_training_drops_truncated_last_rows_and_keeps_terminal_ones(
    dataset: TransitionDataset,
) -> None:
    """400 rows in episodes of 20, of which every other is truncated."""
    learning = prepared(dataset)
    assert len(learning) == 390
    assert learning.terminations.sum() == 10
    assert learning.next_action_valid is not None
    assert torch.all(learning.next_action_valid + learning.terminations >= 1)
    assert len(prepared(dataset, critic_bc_weight=0.0)) == 400


def without_boundaries() -> TransitionDataset:
    obs = torch.randn(10, 3, generator=torch.Generator().manual_seed(0))
    fields = {"obs": obs, "actions": obs[:, :2].tanh(), "rewards": torch.zeros(10)}
    return TransitionDataset.from_dict({**fields, "next_obs": obs + 5, "terminations": [0.0] * 10})


def test_unknown_boundaries_are_an_error_that_says_what_to_do() -> None:
    with pytest.raises(DatasetError, match="data convert --with-next-actions"):
        prepared(without_boundaries())
    assert len(prepared(without_boundaries(), critic_bc_weight=0.0)) == 10


def test_a_batch_without_next_actions_is_refused_unless_the_penalty_is_off(
    dataset: TransitionDataset,
) -> None:
    batch = replace(batch_of(dataset), next_actions=None)
    with pytest.raises(DatasetError, match="critic_bc_weight: 0"):
        make().update(batch)
    assert make(critic_bc_weight=0.0).update(batch)["next_bc_loss"].item() == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"actor_bc_weight": -0.1}, "actor_bc_weight: must be >= 0"),
        ({"critic_bc_weight": -0.1}, "critic_bc_weight: must be >= 0"),
        ({"actor_q_weight": -1.0}, "actor_q_weight: must be >= 0"),
        ({"policy_noise": -0.2}, "policy_noise: must be >= 0"),
        ({"noise_clip": -0.5}, "noise_clip: must be >= 0"),
        ({"policy_delay": 0}, "policy_delay: must be >= 1"),
        ({"normalize_q": "often"}, "normalize_q"),
    ],
)
def test_bad_options_name_themselves_and_their_range(options: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ReBRACConfig(**options)


@pytest.mark.parametrize(("weight", "best"), [(100.0, 0.0), (0.001, 0.5)])
def test_bandit_moves_from_cloning_to_the_best_action(weight: float, best: float) -> None:
    """Data U(-1, 1), reward -1 - (a - 0.5)²: a strong term finds the mean, a weak one the optimum."""
    generator = torch.Generator().manual_seed(0)
    actions = 2 * torch.rand(4000, 1, generator=generator) - 1
    obs = torch.zeros(4000, 1)
    rewards = -1 - (actions - 0.5).square().squeeze(1)
    dataset = TransitionDataset(obs, actions, rewards, obs, torch.ones(4000))
    config = ReBRACConfig(actor_bc_weight=weight, critic_bc_weight=0.0, hidden_sizes=(32, 32))
    algorithm = ReBRACAlgorithm(ProblemSpec(1, "continuous", 1, (-1.0,), (1.0,)), config)
    for _ in range(1000):
        algorithm.update(dataset.sample(128, generator=generator))
    assert algorithm.act(torch.zeros(1, 1)).item() == pytest.approx(best, abs=0.1)
