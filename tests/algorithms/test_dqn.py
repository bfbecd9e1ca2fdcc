"""What is special to DQN: double targets, the Huber loss, hard copies, ε, priorities."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tests.support.online import (
    CHOICES,
    make,
    moved,
    random_batch,
    snapshot,
    target_of_update,
)

from rl_training.algorithms.dqn import DQN, DQNConfig, critic_loss, dqn_critic_loss, dqn_loss
from rl_training.config import ConfigError
from rl_training.data import Batch
from rl_training.engine import FusedAdam
from rl_training.models import DuelingMLP
from rl_training.models.numpy_forward import numpy_mlp
from rl_training.runtime import train

Q_VALUES, REWARDS = torch.tensor([2.5, -3.0]), torch.tensor([1.0, -1.0])


@pytest.mark.parametrize(
    ("double", "target"), [(False, [4.96, 0.98]), (True, [1.99, -0.505])], ids=["plain", "double"]
)
def test_target_has_the_reference_values(double: bool, target: list[float]) -> None:
    nets = SimpleNamespace(
        critic=lambda _: torch.tensor([[1.0, 5.0, 2.0], [0.0, -1.0, 3.0]]),
        target_critic=lambda _: torch.tensor([[2.0, 1.0, 4.0], [1.0, 2.0, 0.5]]),
    )
    blank, actions = torch.zeros(2, 1), torch.tensor([0, 2])
    config = DQNConfig(gamma=0.99, double=double)
    for ends, expected in ((torch.zeros(2), target), (torch.ones(2), [1.0, -1.0])):
        batch = Batch(blank, actions, REWARDS, blank, ends)
        found = target_of_update("dqn", nets, batch, {}, config)
        assert found.tolist() == pytest.approx(expected, abs=1e-5)
    terms = critic_loss(nets, batch, {}, config)  # type: ignore[arg-type]
    assert terms["q_mean"].item() == pytest.approx(2.0)  # of the actions taken: 1 and 3


def test_loss_is_hubers() -> None:
    terms = dqn_critic_loss(q_values=Q_VALUES, target_q=torch.tensor([1.99, -0.505]))
    assert terms["critic_loss"].item() == pytest.approx(1.062525, abs=1e-5)
    assert dqn_loss is dqn_critic_loss


def test_dueling_streams_meet_with_the_mean_advantage() -> None:
    network = DuelingMLP(3, (8, 8), 3)
    with torch.no_grad():
        for stream, values in ((network.value, [2.0]), (network.advantage, [1.0, -1.0, 0.5])):
            stream.layers[-1].weight.zero_()
            stream.layers[-1].bias.copy_(torch.tensor(values))
    expected = pytest.approx([2.833333, 0.833333, 2.333333], abs=1e-5)
    obs = torch.randn(1, 3)
    assert network(obs)[0].tolist() == expected
    for copies in (True, False):
        values = network.as_numpy(lambda net, copies=copies: numpy_mlp(net, copies=copies))
        assert values(obs.numpy())[0].tolist() == expected


@pytest.mark.parametrize("dueling", [False, True])
def test_acting_is_greedy_in_the_online_values(dueling: bool) -> None:
    algorithm = make("dqn", dueling=dueling)
    assert isinstance(algorithm.critic, DuelingMLP) == dueling
    obs = 10 * torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
    best = algorithm.critic(obs).argmax(-1)
    assert len(set(best.tolist())) > 1
    assert torch.equal(algorithm.act(obs), best)
    assert algorithm.best_actions(obs.numpy()).tolist() == best.tolist()


# -- the copy into the target -----------------------------------------------------------------------


@pytest.mark.parametrize("envs", [1, 3, 8, 25])
def test_targets_are_copied_by_environment_steps(envs: int) -> None:
    """Whenever a multiple of 10 is reached or passed, however many steps come at once."""
    algorithm, batch = make("dqn", target_update_interval=10), random_batch(CHOICES)
    for before in range(0, 200, envs):
        after = before + envs
        algorithm.update(batch)
        start = snapshot(algorithm)
        algorithm.after_collecting(before, after)
        passed = any(step % 10 == 0 for step in range(before + 1, after + 1))
        assert moved(start, algorithm) == ({"target_critic"} if passed else set())
        for own, copy in zip(
            algorithm.critic.parameters(), algorithm.target_critic.parameters(), strict=True
        ):
            assert torch.equal(own, copy) == passed


def test_updates_alone_never_move_the_target() -> None:
    algorithm, batch = make("dqn", target_update_interval=1), random_batch(CHOICES)
    before = snapshot(algorithm)
    for _ in range(5):
        algorithm.update(batch)
    assert moved(before, algorithm) == {"critic"}


def test_a_run_copies_at_the_same_steps_with_several_environments(
    small_config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = []
    monkeypatch.setattr(DQN, "track_targets", lambda self, tau: copies.append(tau))
    for envs in (1, 3):
        train(
            small_config(
                "dqn",
                num_envs=envs,
                total_timesteps=60,
                algo_kwargs={"target_update_interval": 10},
            )
        )
        assert copies == [1.0] * 6
        copies.clear()


# -- exploration --------------------------------------------------------------------------------------


class Dice:
    """Even throws, so that the share of random actions is ε; these are all -1."""

    def random(self, count: int) -> Any:
        return (np.arange(count) + 0.5) / count

    def integers(self, _: int, size: int) -> Any:
        return np.full(size, -1)


@pytest.mark.parametrize(
    ("progress", "epsilon"),
    [(0.0, 1.0), (0.05, 0.76), (0.1, 0.52), (0.2, 0.04), (0.7, 0.04), (1.0, 0.04)],
)
def test_epsilon_falls_linearly_and_stays(progress: float, epsilon: float) -> None:
    algorithm = make("dqn", epsilon_start=1.0, epsilon_end=0.04, exploration_fraction=0.2)
    obs = np.random.default_rng(0).standard_normal((1000, 3), np.float32)
    actions = algorithm.explore(obs, Dice(), progress)
    at_random = actions == -1
    assert at_random.mean() == pytest.approx(epsilon, abs=1e-3)
    greedy = algorithm.act(torch.from_numpy(obs)).numpy()
    assert (actions == greedy)[~at_random].all()


# -- the gradient ---------------------------------------------------------------------------------------


class PlainDescent(DQN):
    """A step is the gradient itself."""

    def build_optimizer(self, name: str) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters_of(name), lr=1.0)


@pytest.mark.parametrize("largest", [0.01, 1e4, None])
def test_the_gradient_norm_is_bounded(largest: float | None) -> None:
    config = DQNConfig(hidden_sizes=(8, 8), max_grad_norm=largest)
    algorithm, batch = PlainDescent(CHOICES, config, seed=1), random_batch(CHOICES)
    parameters = list(algorithm.critic.parameters())
    before = [parameter.detach().clone() for parameter in parameters]
    loss = critic_loss(algorithm, batch, {}, config)["critic_loss"]
    gradients = torch.autograd.grad(loss, parameters)
    norm = torch.cat([gradient.flatten() for gradient in gradients]).norm().item()
    algorithm.update(batch)
    factor = 0.01 / norm if largest == 0.01 else 1.0
    assert norm > 0.05
    for start, parameter, gradient in zip(before, parameters, gradients, strict=True):
        torch.testing.assert_close(parameter, start - factor * gradient, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("largest", [0.5, 100.0])
def test_adam_clips_like_torch(largest: float) -> None:
    """Adam hides the scale of its first gradient; its moments do not."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((4, 3), (3,), (2, 1, 5))
    ours, theirs = ([torch.nn.Parameter(torch.ones(shape)) for shape in shapes] for _ in range(2))
    fast, plain = FusedAdam(ours, 1e-2), torch.optim.Adam(theirs, lr=1e-2)
    for _ in range(3):
        gradients = tuple(torch.randn(shape, generator=generator) for shape in shapes)
        for parameter, gradient in zip(theirs, gradients, strict=True):
            parameter.grad = gradient.clone()
        norm = torch.nn.utils.clip_grad_norm_(theirs, largest).item()
        assert (norm > largest) == (largest == 0.5)
        plain.step()
        fast.apply(gradients, largest)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)
        for moment in ("exp_avg", "exp_avg_sq"):
            torch.testing.assert_close(fast.state[a][moment], plain.state[b][moment])


# -- priorities -----------------------------------------------------------------------------------------


def test_importance_weights_scale_each_rows_loss() -> None:
    target_q, weights = torch.tensor([1.99, -0.505]), torch.tensor([0.5, 0.1])
    terms = dqn_critic_loss(q_values=Q_VALUES, target_q=target_q, weights=weights)
    expected = (0.5 * 0.51**2 / 2 + 0.1 * (2.495 - 0.5)) / 2
    assert terms["critic_loss"].item() == pytest.approx(expected, abs=1e-5)


def test_errors_of_the_batch_come_out_as_priorities() -> None:
    algorithm = make("dqn")
    plain = random_batch(CHOICES)
    assert "priorities" not in algorithm.update(plain)
    assert algorithm.priorities is None
    batch = random_batch(CHOICES, weights=torch.linspace(0.1, 1, 16))
    target = target_of_update("dqn", algorithm, batch, {}, algorithm.config)
    taken = algorithm.critic(batch.obs)[torch.arange(16), batch.actions]
    errors = (taken - target).abs().detach()  # before the step, without the weights
    assert "priorities" not in algorithm.update(batch)
    torch.testing.assert_close(algorithm.priorities.abs(), errors)


def test_a_prioritised_run_feeds_errors_back(
    small_config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rl_training.data.replay.prioritized import PrioritizedReplayBuffer

    fed: list[Any] = []
    original = PrioritizedReplayBuffer.update_priorities

    def update_priorities(self: Any, indices: Any, errors: Any) -> None:
        fed.append((indices, errors))
        original(self, indices, errors)
        sizes = self._tree.leaves[indices[-1].item()]
        assert sizes == pytest.approx((abs(errors[-1].item()) + 1e-6) ** 0.6, rel=1e-5)

    monkeypatch.setattr(PrioritizedReplayBuffer, "update_priorities", update_priorities)
    train(small_config("dqn", algo_kwargs={"prioritized": True, "train_frequency": 1}))
    assert len(fed) == 30
    assert all(len(indices) == len(errors) == 16 for indices, errors in fed)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon_start": 1.1}, r"epsilon_start: must be <= 1 \(range: >= 0(\.0)?, <= 1(\.0)?\)"),
        ({"epsilon_end": -0.1}, "epsilon_end: must be >= 0"),
        ({"exploration_fraction": 0.0}, "exploration_fraction: must be > 0"),
        ({"target_update_interval": 0}, "target_update_interval: must be >= 1, got 0"),
        ({"max_grad_norm": 0.0}, "max_grad_norm: must be > 0"),
        ({"double": 1}, "double: expected true or false"),
        ({"hidden_sizes": []}, "hidden_sizes"),
    ],
)
def test_bad_options_fail_fast(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        DQNConfig(**options)
