"""What is special to DDPG: one critic, no smoothing, everything moves in every update."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

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

from rl_training.algorithms.ddpg import DDPGConfig, ddpg_loss
from rl_training.config import ConfigError


def test_target_takes_the_target_actors_own_action() -> None:
    nets = SimpleNamespace(
        target_actor=lambda _: torch.tensor([[0.5], [-0.5], [1.0]]),
        target_critic=lambda inputs: 10 * inputs[:, 1].unsqueeze(0),
        critic=lambda _: torch.zeros(1, 3),
    )
    batch = reference_batch([1.0, 2.0, 3.0], [0.0, 0.0, 1.0])
    target = target_of_update("ddpg", nets, batch, {}, DDPGConfig(gamma=0.9))
    assert target.tolist() == pytest.approx([5.5, -2.5, 3.0], abs=1e-5)


def test_whole_loss_is_its_parts() -> None:
    terms = ddpg_loss(
        q_values=torch.tensor([[1.0, 4.0]]),
        target_q=torch.tensor([2.0, 2.0]),
        policy_q_values=torch.tensor([1.0, 4.0]),
    )
    assert terms["critic_loss"].item() == pytest.approx(2.5)
    assert terms["actor_loss"].item() == -2.5


def test_one_critic_and_both_targets_follow_in_every_update() -> None:
    algorithm, batch = make("ddpg", tau=0.25), random_batch()
    assert algorithm.critic.members == 1
    for _ in range(2):
        before = snapshot(algorithm)
        algorithm.update(batch)
        assert moved(before, algorithm) == {"critic", "actor", "target_critic", "target_actor"}
        for name in ("critic.weights.0", "actor.net.layers.0.weight"):
            expected = 0.75 * before[f"target_{name}"] + 0.25 * algorithm.state_dict()[name]
            torch.testing.assert_close(algorithm.state_dict()[f"target_{name}"], expected)


def test_updates_draw_nothing() -> None:
    algorithm = make("ddpg")
    before = algorithm.generator.get_state()
    algorithm.update(random_batch())
    assert torch.equal(algorithm.generator.get_state(), before)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"exploration_noise": -0.1}, "exploration_noise: must be >= 0, got -0.1"),
        ({"tau": 0.0}, "tau: must be > 0"),
        ({"actor_learning_rate": 0.0}, "actor_learning_rate: must be > 0"),
        ({"policy_delay": 2}, "policy_delay: unknown key"),
    ],
)
def test_bad_options_fail_fast(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        DDPGConfig(**options)
