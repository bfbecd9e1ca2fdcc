"""What is special to TD3: smoothed targets of the least critic, the delay, noise for collecting."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tests.support.online import (
    make,
    moved,
    random_batch,
    reference_batch,
    snapshot,
    target_of_update,
)

from rl_training.algorithms.td3 import TD3Config, actor_loss, td3_actor_loss, td3_loss
from rl_training.config import ConfigError


def test_target_is_the_least_critic_at_the_smoothed_action_of_the_target_actor() -> None:
    """Noise is scaled, clipped, added and the sum clipped; then the least critic counts."""
    asked = []

    def target_critic(inputs: torch.Tensor) -> torch.Tensor:
        asked.append(inputs)
        return torch.tensor([[3.0, 4.0], [2.5, 4.5]])

    nets = SimpleNamespace(
        target_actor=lambda _: torch.tensor([[0.5, 0.9], [-0.95, 0.0]]),
        target_critic=target_critic,
        critic=lambda _: torch.zeros(2, 2),
    )
    batch = reference_batch([1.0, 2.0], [0.0, 1.0])
    noise = {"smoothing": torch.tensor([[0.8, 0.3], [-0.4, -3.0]])}
    config = TD3Config(gamma=0.99, policy_noise=0.2, noise_clip=0.5)
    target = target_of_update("td3", nets, batch, noise, config)
    assert target.tolist() == pytest.approx([3.475, 2.0], abs=1e-5)
    smoothed = asked[0][:, 1:].flatten().tolist()
    assert smoothed == pytest.approx([0.66, 0.96, -1.0, -0.5], abs=1e-5)


def test_actor_climbs_the_first_critic_alone() -> None:
    algorithm, batch = make("td3"), random_batch()
    before = actor_loss(algorithm, batch, {}, algorithm.config)["actor_loss"]
    with torch.no_grad():
        for parameter in algorithm.critic.parameters():
            parameter[1] += 1.0
    assert actor_loss(algorithm, batch, {}, algorithm.config)["actor_loss"] == before
    assert td3_actor_loss(q_values=torch.tensor([1.0, 4.0]))["actor_loss"].item() == -2.5


def test_whole_loss_is_its_parts() -> None:
    terms = td3_loss(
        q_values=torch.tensor([[1.0, 2.0], [3.0, 5.0]]),
        target_q=torch.tensor([2.0, 2.0]),
        policy_q_values=torch.tensor([1.0, 4.0]),
    )
    assert terms["critic_loss"].item() == pytest.approx(0.5 + 5.0)
    assert terms["actor_loss"].item() == -2.5


@pytest.mark.parametrize("delay", [1, 2, 3])
def test_actor_and_targets_wait_for_the_delay(delay: int) -> None:
    algorithm, batch = make("td3", policy_delay=delay), random_batch()
    for count in range(1, 7):
        before = snapshot(algorithm)
        terms = algorithm.update(batch)
        waiting = set() if count % delay else {"actor", "target_actor", "target_critic"}
        assert moved(before, algorithm) == {"critic", *waiting}
        assert ("actor_loss" in terms) == bool(waiting)


def test_every_update_draws_other_noise() -> None:
    algorithm, batch, seen = make("td3"), random_batch(), []
    plain = algorithm.minimize

    def minimize(network: str, batch: Any, noise: Any) -> Any:
        seen.extend(noise.values())
        return plain(network, batch, noise)

    algorithm.minimize = minimize
    algorithm.update(batch)
    algorithm.update(batch)
    first, second = seen
    assert first.shape == batch.actions.shape
    assert not torch.equal(first, second)
    assert first[0].tolist() != first[1].tolist()


@pytest.mark.parametrize("name", ["td3", "ddpg"])
def test_collecting_adds_gaussian_noise_and_clips(name: str) -> None:
    obs = np.random.default_rng(0).standard_normal((500, 3), np.float32)
    algorithm = make(name, exploration_noise=0.7)
    found = algorithm.explore(obs, np.random.default_rng(5), 0.3)
    noise = np.random.default_rng(5).standard_normal((500, 2), np.float32)
    mode = algorithm.act(torch.from_numpy(obs)).numpy()
    np.testing.assert_allclose(found, np.clip(mode + 0.7 * noise, -1, 1), atol=1e-6)
    assert found.max() == 1.0
    silent = make(name, exploration_noise=0.0).explore(obs, np.random.default_rng(5), 0.3)
    np.testing.assert_allclose(silent, mode, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policy_delay": 0}, "policy_delay: must be >= 1, got 0"),
        ({"policy_noise": -0.2}, "policy_noise: must be >= 0, got -0.2"),
        ({"noise_clip": -0.5}, "noise_clip: must be >= 0"),
        ({"exploration_noise": -0.1}, "exploration_noise: must be >= 0"),
        ({"policy_delay": 1.5}, "policy_delay: expected a whole number"),
    ],
)
def test_bad_options_fail_fast(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TD3Config(**options)
