"""What is special to behaviour cloning."""

from __future__ import annotations

import pytest
import torch

from rl_training.algorithms.bc import BCAlgorithm, BCConfig, bc_likelihood_actor_loss, bc_loss
from rl_training.data import TransitionDataset
from rl_training.models import gaussian_log_prob
from rl_training.spec import ProblemSpec


def test_loss_is_the_mean_over_batch_and_dimensions() -> None:
    policy = torch.tensor([[0.2, 0.4], [-0.1, 0.3], [0.0, 0.0], [1.0, -1.0]])
    actions = torch.tensor([[0.1, 0.5], [-0.1, 0.1], [0.2, -0.2], [0.8, -0.6]])
    loss = bc_loss(policy_actions=policy, actions=actions)["actor_loss"]
    assert loss.item() == pytest.approx(0.0425, abs=1e-6)


def test_gaussian_log_prob_is_unsquashed_and_summed_over_dimensions() -> None:
    mean = torch.tensor([[0.1, -0.2], [0.5, 0.0]])
    log_std = torch.tensor([-0.5, 0.2])
    actions = torch.tensor([[0.3, 0.4], [-0.5, 0.9]])
    log_probs = gaussian_log_prob(mean, log_std, actions)
    assert log_probs.tolist() == pytest.approx([-1.712900, -3.168498], abs=1e-5)
    loss = bc_likelihood_actor_loss(log_probs=log_probs)["actor_loss"]
    assert loss.item() == pytest.approx(2.440699, abs=1e-5)


def bandit(policy_type: str) -> torch.Tensor:
    """Clone actions drawn around 0.3 with deviation 0.2 in the only state."""
    generator = torch.Generator().manual_seed(0)
    actions = 0.3 + 0.2 * torch.randn(2000, 1, generator=generator)
    obs = torch.zeros(2000, 1)
    dataset = TransitionDataset(obs, actions, torch.zeros(2000), obs, torch.ones(2000))
    config = BCConfig(policy_type=policy_type, hidden_sizes=(8,), learning_rate=1e-2)  # type: ignore[arg-type]
    algorithm = BCAlgorithm(ProblemSpec(1, "continuous", 1, (-1.0,), (1.0,)), config)
    for _ in range(800):
        algorithm.update(dataset.sample(64, generator=generator))
    draws = algorithm.act(torch.zeros(4000, 1), explore=True)
    return torch.cat([algorithm.act(torch.zeros(1, 1)).flatten(), draws.std().reshape(1)])


def test_deterministic_policy_clones_the_mean() -> None:
    mode, spread = bandit("deterministic")
    assert mode.item() == pytest.approx(0.3, abs=0.05)
    assert spread.item() == pytest.approx(0, abs=1e-5)


def test_gaussian_policy_clones_mean_and_deviation() -> None:
    mode, spread = bandit("gaussian")
    assert mode.item() == pytest.approx(0.3, abs=0.05)
    assert spread.item() == pytest.approx(0.2, abs=0.03)
