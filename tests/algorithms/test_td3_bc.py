"""What is special to TD3+BC: reference values, the delay, the mask."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from rl_training.algorithms.targets import ensemble_mse, smooth_actions, td_target
from rl_training.algorithms.td3_bc import (
    TD3BCAlgorithm,
    TD3BCConfig,
    critic_loss,
    td3_bc_actor_loss,
    td3_bc_critic_loss,
    td3_bc_loss,
)
from rl_training.data import TransitionDataset
from rl_training.spec import ProblemSpec

SPEC = ProblemSpec(1, "continuous", 1, (-1.0,), (1.0,))


def test_target_smoothing_scales_clips_and_clips_again() -> None:
    smoothed = smooth_actions(
        torch.tensor([[0.5, 0.9], [-0.95, 0.0]]),
        torch.tensor([[0.8, 0.3], [-0.4, -3.0]]),
        policy_noise=0.2,
        noise_clip=0.5,
    )
    torch.testing.assert_close(smoothed, torch.tensor([[0.66, 0.96], [-1.0, -0.5]]))


def test_target_takes_the_minimum_and_masks_terminations_only() -> None:
    next_q = torch.tensor([[3.0, 4.0], [2.5, 4.5]])
    target = td_target(
        rewards=torch.tensor([1.0, 2.0]),
        terminations=torch.tensor([0.0, 1.0]),
        next_values=next_q.amin(0),
        gamma=0.99,
    )
    assert target.tolist() == pytest.approx([3.475, 2.0])


def test_critic_loss_sums_over_critics() -> None:
    q_values = torch.tensor([[9.0, 3.0], [10.0, 4.0]])
    target = torch.tensor([9.90802, 3.45802])
    assert ensemble_mse(q_values, target).item() == pytest.approx(0.668243, abs=1e-5)
    terms = td3_bc_critic_loss(q_values=q_values, target_q=target)
    assert terms["critic_loss"].item() == pytest.approx(0.668243, abs=1e-5)


def reference() -> dict[str, Any]:
    return {
        "policy_actions": torch.tensor([[0.2, 0.4], [-0.1, 0.3], [0.0, 0.0], [1.0, -1.0]]),
        "actions": torch.tensor([[0.1, 0.5], [-0.1, 0.1], [0.2, -0.2], [0.8, -0.6]]),
        "bc_alpha": 2.5,
    }


def test_actor_loss_has_the_reference_value() -> None:
    q_values = torch.tensor([10.0, -4.0, 6.0, 0.0])
    terms = td3_bc_actor_loss(q_values=q_values, **reference())
    assert terms["q_scale"].item() == pytest.approx(0.5)
    assert terms["bc_loss"].item() == pytest.approx(0.0425)
    assert terms["actor_loss"].item() == pytest.approx(-1.4575)


def test_the_scale_of_q_takes_no_gradient() -> None:
    q_values = torch.tensor([10.0, -4.0, 6.0, 0.0], requires_grad=True)
    td3_bc_actor_loss(q_values=q_values, **reference())["actor_loss"].backward()
    assert q_values.grad is not None
    assert q_values.grad.tolist() == pytest.approx([-0.125] * 4)  # -λ / batch


def test_whole_loss_is_both_halves() -> None:
    terms = td3_bc_loss(
        q_values=torch.zeros(2, 4),
        target_q=torch.ones(4),
        policy_q_values=torch.tensor([10.0, -4.0, 6.0, 0.0]),
        **reference(),
    )
    assert terms["critic_loss"].item() == pytest.approx(2)
    assert terms["actor_loss"].item() == pytest.approx(-1.4575)


def loop_dataset(
    rows: int, *, terminate_every: int = 0, truncate_every: int = 0
) -> TransitionDataset:
    """One state that leads to itself with reward 1."""
    obs = torch.zeros(rows, 1)
    position = torch.arange(1, rows + 1)
    never = torch.zeros(rows, dtype=torch.bool)
    terminations = position % terminate_every == 0 if terminate_every else never
    truncations = position % truncate_every == 0 if truncate_every else never
    actions = torch.zeros(rows, 1)
    return TransitionDataset(obs, actions, torch.ones(rows), obs, terminations, truncations)


@pytest.mark.parametrize(
    ("ends", "value"),
    [({}, 10.0), ({"truncate_every": 5}, 10.0), ({"terminate_every": 5}, 1 / (1 - 0.9 * 0.8))],
    ids=["endless", "truncated-still-bootstraps", "terminated-does-not"],
)
def test_value_of_a_loop(ends: dict[str, int], value: float) -> None:
    dataset = loop_dataset(500, **ends)
    config = TD3BCConfig(
        gamma=0.9, tau=0.1, learning_rate=1e-2, hidden_sizes=(16,), policy_noise=0.0, bc_alpha=0.0
    )
    algorithm = TD3BCAlgorithm(SPEC, config)
    generator = torch.Generator().manual_seed(0)
    for _ in range(1500):
        algorithm.update(dataset.sample(256, generator=generator))
    q_values = algorithm.critic(torch.zeros(1, 2))
    assert q_values.mean().item() == pytest.approx(value, rel=0.05)


def test_actor_and_targets_stand_still_between_delayed_steps() -> None:
    algorithm = TD3BCAlgorithm(SPEC, TD3BCConfig(policy_delay=3, hidden_sizes=(4,)))
    batch = loop_dataset(50).sample(8, generator=torch.Generator().manual_seed(0))

    def still() -> list[Tensor]:
        parts = (algorithm.actor, algorithm.target_actor, algorithm.target_critic)
        return [parameter.clone() for part in parts for parameter in part.parameters()]

    moved = []
    for _ in range(6):
        before = still()
        algorithm.update(batch)
        moved.append(not all(map(torch.equal, before, still())))
    assert moved == [False, False, True, False, False, True]


def test_critic_sees_the_smoothed_target_action() -> None:
    """With all noise clipped to one side the target changes by what the critic says there."""
    algorithm = TD3BCAlgorithm(SPEC, TD3BCConfig(hidden_sizes=(16,)), seed=1)
    batch = loop_dataset(4).sample(4, generator=torch.Generator().manual_seed(0))
    terms = critic_loss(algorithm, batch, {"smoothing": torch.full((4, 1), 9.0)}, algorithm.config)
    shifted = (algorithm.target_actor(batch.next_obs) + 0.5).clamp(-1, 1)
    values = algorithm.target_critic(torch.cat([batch.next_obs, shifted], -1)).amin(0)
    assert terms["target_q_mean"].item() == pytest.approx(
        (1 + 0.99 * values).mean().item(), abs=1e-6
    )


@pytest.mark.parametrize(("bc_alpha", "best"), [(0.0, 0.0), (50.0, 0.5)])
def test_bandit_moves_from_cloning_to_the_best_action(bc_alpha: float, best: float) -> None:
    """Data U(-1, 1), reward -1 - (a - 0.5)²: cloning finds the mean, a weak term the optimum.

    The -1 keeps |Q| and with it the scale λ away from its pole at the optimum.
    """
    generator = torch.Generator().manual_seed(0)
    actions = 2 * torch.rand(4000, 1, generator=generator) - 1
    obs = torch.zeros(4000, 1)
    rewards = -1 - (actions - 0.5).square().squeeze(1)
    dataset = TransitionDataset(obs, actions, rewards, obs, torch.ones(4000))
    config = TD3BCConfig(bc_alpha=bc_alpha, hidden_sizes=(32, 32), learning_rate=3e-3)
    algorithm = TD3BCAlgorithm(SPEC, config)
    for _ in range(1200):
        algorithm.update(dataset.sample(128, generator=generator))
    assert algorithm.act(torch.zeros(1, 1)).item() == pytest.approx(best, abs=0.08)
