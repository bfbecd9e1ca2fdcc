"""Returns to go against the sum written out, and of collected rows against a model of the ring."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.support.data import make_fields

from rl_training.data import ReplayBuffer, TransitionDataset
from rl_training.data.transitions.returns import ReturnTracker, returns_to_go


def written_out(rewards: Any, gamma: float, terminated: bool, worst: float = 0.0) -> float:
    """Return of the first of these rewards, which reach to the end of its episode."""
    steps = np.arange(len(rewards))
    total = float((np.asarray(rewards, np.float64) * gamma**steps).sum())
    lowest = min(0.0, worst, *rewards)
    if terminated or lowest == 0:
        return total
    return total + gamma ** len(rewards) * lowest / (1 - gamma) if gamma < 1 else -np.inf


@pytest.mark.parametrize("worst", [0.0, -5.0])
def test_returns_to_go_are_the_discounted_sums_of_each_episode(worst: float) -> None:
    torch.manual_seed(0)
    lengths = torch.tensor([1, 7, 2, 16, 3, 1])
    ends = lengths.cumsum(0) - 1
    last = ends.repeat_interleave(lengths)
    rewards, terminated = torch.randn(len(last)), torch.zeros(len(last), dtype=torch.bool)
    terminated[ends[::2]] = True
    found = returns_to_go(rewards, last, 0.9, terminated, worst)
    expected = [
        written_out(rewards[row : end + 1].tolist(), 0.9, bool(terminated[end]), worst)
        for row, end in enumerate(last.tolist())
    ]
    torch.testing.assert_close(found, torch.tensor(expected), atol=1e-5, rtol=1e-5)


def of_one_episode(
    rewards: list[float], gamma: float, *, terminates: bool, bound: bool = True
) -> list[float]:
    """As a dataset gives them."""
    rows = len(rewards)
    at_end = np.arange(rows) == rows - 1
    dataset = TransitionDataset(
        obs=np.zeros((rows, 1)),
        actions=np.zeros((rows, 1)),
        rewards=np.array(rewards),
        next_obs=np.zeros((rows, 1)),
        terminations=at_end & terminates,
        truncations=at_end & (not terminates),
    )
    returns = dataset.with_returns(gamma, lower_bounds=bound).gather(torch.arange(rows)).returns
    assert returns is not None
    return returns.tolist()


def test_a_failure_that_is_cut_goes_on_failing_as_in_the_authors_code() -> None:
    """AntMaze's rewards times 10 minus 5: r / (1 - γ) in every row, the last one included."""
    assert of_one_episode([-5.0] * 4, 0.99, terminates=False) == pytest.approx([-500.0] * 4)
    assert of_one_episode([-5.0] * 4, 0.99, terminates=True)[-1] == -5.0
    success = of_one_episode([-5.0, -5.0, 5.0], 0.99, terminates=True)
    assert success == pytest.approx([-5 - 4.95 + 4.9005, -5 + 4.95, 5.0])


def test_a_cut_episode_with_other_rewards_goes_on_with_the_worst_of_the_log() -> None:
    dense = of_one_episode([-3.0, -1.0, -2.0], 0.9, terminates=False)
    assert dense == pytest.approx([-3 - 0.9 - 1.62 - 0.729 * 30, -1 - 1.8 - 0.81 * 30, -2 - 27])
    # nothing is lost where rewards are not negative: the episode may end with the next step
    assert of_one_episode([1.0, 0.0, 2.0], 0.5, terminates=False) == [1.5, 1.0, 2.0]
    assert of_one_episode([-1.0, -1.0], 1.0, terminates=False) == [-np.inf, -np.inf]
    assert of_one_episode([1.0, 1.0], 1.0, terminates=False) == [2.0, 1.0]


def test_the_sum_of_a_cut_episode_ends_at_the_cut_unless_a_lower_bound_is_asked_for() -> None:
    assert of_one_episode([-5.0, -5.0], 0.9, terminates=False, bound=False) == [-9.5, -5.0]
    assert of_one_episode([-1.0, -1.0], 1.0, terminates=False, bound=False) == [-2.0, -1.0]


def test_batches_carry_the_returns_of_the_rewards_they_show() -> None:
    dataset = TransitionDataset.from_dict(make_fields())
    shown = dataset.with_reward_transform(scale=2.0).top_episodes(0.5)
    shown = shown.with_returns(0.95, lower_bounds=True)
    batch = shown.gather(torch.arange(len(shown)))
    assert batch.returns is not None
    rewards, starts, worst = shown.rewards, shown.episode_starts, float(shown.rewards.min())
    for start, end in zip(starts, [*starts[1:], len(shown)], strict=True):
        terminated = bool(shown.terminations[end - 1])
        total = written_out(rewards[start:end].tolist(), 0.95, terminated, worst)
        assert batch.returns[start].item() == pytest.approx(total, abs=1e-3)


@pytest.mark.parametrize("capacity", [3, 4, 5, 6, 7, 11, 30])
def test_tracked_returns_are_those_of_a_ring_written_out(capacity: int) -> None:
    """Three environments whose episodes end at random times, in rings down to one step."""
    num_envs, gamma, worst = 3, 0.9, -1.0
    rng = np.random.default_rng(capacity)
    buffer = ReplayBuffer(capacity, 1, 1, num_envs=num_envs)

    def rewards_at(positions: torch.Tensor) -> torch.Tensor:
        return buffer.rows_at(positions)[:, buffer.layout.reward]

    def tracker() -> ReturnTracker:
        return ReturnTracker(capacity, num_envs, gamma, rewards_at, worst)

    tracked = tracker()
    running: list[list[tuple[int, float]]] = [[] for _ in range(num_envs)]
    expected: dict[int, float] = {}  # by number of the row
    for step in range(60):
        rewards = rng.normal(-1, 1, num_envs).astype(np.float32)
        terminated = rng.random(num_envs) < 0.1
        truncated = ~terminated & (rng.random(num_envs) < 0.1)
        blank = np.zeros((num_envs, 1))
        buffer.add_batch(blank, blank, rewards, blank, terminated, truncated)
        numbers = buffer.numbers[-num_envs:]
        tracked.add(numbers, *buffer.ends(numbers))
        for env, reward in enumerate(rewards.tolist()):
            running[env].append((step * num_envs + env, reward))
            if terminated[env] or truncated[env]:
                for index, (number, _) in enumerate(running[env]):
                    after = [later for _, later in running[env][index:]]
                    expected[number] = written_out(after, gamma, bool(terminated[env]), worst)
                running[env].clear()
        stored = [expected.get(number, -np.inf) for number in buffer.numbers]
        found = tracked.returns[torch.tensor(buffer.numbers) % capacity]
        assert found.tolist() == pytest.approx(stored, abs=1e-4)
        rebuilt, columns = tracker(), buffer.columns_of(buffer.numbers)
        rebuilt.rebuild(
            buffer.numbers, columns["env_ids"], columns["first"], *buffer.ends(buffer.numbers)
        )
        assert torch.equal(rebuilt.returns, tracked.returns)
    assert len(expected) > 100
