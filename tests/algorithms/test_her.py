"""What is special to HER's DDPG: normalised inputs, clipped targets, small actions, two noises."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tests.support.online import (
    SPEC,
    make,
    moved,
    random_batch,
    reference_batch,
    snapshot,
)

from rl_training.algorithms import her_loss
from rl_training.algorithms.her import HERConfig, critic_loss, her_actor_loss, her_critic_loss
from rl_training.config import ConfigError
from rl_training.models.running_normalizer import RunningNormalizer
from rl_training.runtime.policy import Policy


@pytest.mark.parametrize(
    ("clip", "expected", "share"), [(True, [-2.0, 0.0, -1.5], 2 / 3), (False, [-11.0, 5.0, -1.5], 0)]
)  # fmt: skip
def test_targets_stay_within_what_a_return_can_be(
    clip: bool, expected: list[float], share: float
) -> None:
    """γ 0.5: no sum of rewards of -1 and 0 is below -2 or above 0."""
    nets = SimpleNamespace(
        target_actor=lambda _: torch.zeros(3, 1),
        target_critic=lambda _: torch.tensor([[-20.0, 10.0, -1.0]]),
        critic=lambda _: torch.zeros(1, 3),
    )
    batch = reference_batch([-1.0, 0.0, -1.0], [0.0, 0.0, 0.0])
    terms = critic_loss(nets, batch, {}, HERConfig(gamma=0.5, clip_targets=clip))  # type: ignore[arg-type]
    target = torch.tensor(expected)
    assert terms["target_q_mean"] == target.mean()
    assert terms["critic_loss"] == target.square().mean()
    assert terms["target_clipped_share"].item() == pytest.approx(share)


def test_whole_loss_is_its_parts() -> None:
    tensors = {
        "q_values": torch.tensor([[-1.0, -4.0]]),
        "target_q": torch.tensor([-2.0, 3.0]),
        "bounds": (-5.0, 0.0),
    }
    policy = {
        "actions": torch.tensor([[0.5, -0.5], [1.0, 0.0]]),
        "action_l2": 2.0,
    }
    q_values = torch.tensor([-1.0, -4.0])
    terms = her_loss(**tensors, **policy, policy_q_values=q_values)  # type: ignore[arg-type]
    assert terms["critic_loss"].item() == pytest.approx((1 + 16) / 2)
    assert terms["actor_loss"].item() == pytest.approx(2.5 + 2.0 * (0.25 + 0.25 + 1.0) / 4)
    halves = her_critic_loss(**tensors) | her_actor_loss(**policy, q_values=q_values)  # type: ignore[arg-type]
    assert set(terms) == set(halves)


def test_targets_follow_in_environment_steps() -> None:
    algorithm, batch = make("her", tau=0.25), random_batch()
    before = snapshot(algorithm)
    algorithm.update(batch)
    assert moved(before, algorithm) == {"critic", "actor", "normalizer"}
    algorithm.after_collecting(100, 199)
    assert moved(before, algorithm) == {"critic", "actor", "normalizer"}
    algorithm.after_collecting(199, 200)
    expected = 0.75 * before["target_critic.weights.0"] + 0.25 * algorithm.critic.weights[0]
    torch.testing.assert_close(algorithm.target_critic.weights[0].data, expected.data)


# -- normalisation -------------------------------------------------------------------------------


def test_statistics_are_those_of_all_rows_and_the_first_guess() -> None:
    rows = 1e4 + torch.randn(300, 2, generator=torch.Generator().manual_seed(0))
    normalizer = RunningNormalizer(2)
    assert torch.equal(normalizer(torch.tensor([[0.5, -2.0]])), torch.tensor([[0.5, -2.0]]))
    for piece in rows.split([1, 100, 7, 192]):
        normalizer.see(piece)
    # one row of mean 0 and variance 1 comes first
    values = rows.double()
    mean = values.sum(0) / 301
    squares = 1 + mean.square() + (values - mean).square().sum(0)
    torch.testing.assert_close(normalizer.mean, mean)
    torch.testing.assert_close(normalizer.squares, squares)
    assert normalizer.count == 301


def test_values_are_clipped_and_constants_do_not_explode() -> None:
    normalizer = RunningNormalizer(2)
    normalizer.see(torch.stack([torch.zeros(10**6), torch.linspace(-1, 1, 10**6)], 1))
    far = torch.tensor([[0.004, 100.0], [-1.0, -100.0]])
    found = normalizer(far)
    assert found[0, 0].item() == pytest.approx(0.4, rel=1e-3)  # no deviation below 0.01
    assert found[:, 1].tolist() == [5, -5]
    assert found[1, 0] == -5
    np.testing.assert_allclose(normalizer.as_numpy()(far.numpy()), found.numpy(), rtol=1e-6)


def test_learning_and_acting_see_normalised_observations() -> None:
    algorithm = make("her")
    seen = []
    algorithm.minimize = lambda name, batch, noise: seen.append(batch) or {}
    far = random_batch()
    far.obs.mul_(50).add_(1_000)
    for _ in range(3):
        algorithm.update(far)
    assert seen[-1].obs.abs().max() <= 5
    torch.testing.assert_close(seen[-1].obs, algorithm.normalizer(far.obs))
    torch.testing.assert_close(seen[-1].next_obs, algorithm.normalizer(far.next_obs))
    obs = far.obs.numpy()
    expected = algorithm.actor(algorithm.normalizer(far.obs)).detach().numpy()
    np.testing.assert_allclose(algorithm.act(far.obs).numpy(), expected, atol=1e-6)
    np.testing.assert_allclose(algorithm.best_actions(obs), expected, atol=1e-6)
    np.testing.assert_allclose(Policy(algorithm).predict(obs), expected, atol=1e-6)


# -- exploration ---------------------------------------------------------------------------------


def test_some_actions_are_random_and_the_rest_are_near_the_policys() -> None:
    algorithm, rng = make("her"), np.random.default_rng(0)
    obs = np.zeros((20_000, SPEC.obs_dim), np.float32)
    best = algorithm.best_actions(obs)
    algorithm.config = HERConfig(exploration_noise=0.0)
    actions = algorithm.explore(obs, rng, 0.5)
    at_random = (actions != best).any(1)
    assert at_random.mean() == pytest.approx(0.3, abs=0.01)
    drawn = actions[at_random]
    assert np.abs(drawn).max() <= 1
    assert drawn.mean() == pytest.approx(0, abs=0.02)
    assert drawn.std() == pytest.approx(1 / np.sqrt(3), abs=0.01)
    algorithm.config = HERConfig(random_action_chance=0.0)
    noise = algorithm.explore(obs, rng, 0.5) - best
    assert noise.std() == pytest.approx(0.2, abs=0.005)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gamma": 1.0}, "gamma: must be < 1"),  # the bound of a target would be infinite
        ({"action_l2": -1.0}, "action_l2: must be >= 0"),
        ({"random_action_chance": 1.1}, "random_action_chance: must be <= 1"),
        ({"target_update_interval": 0}, "target_update_interval: must be >= 1"),
    ],
)
def test_bad_options_fail_fast(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        HERConfig(**options)
