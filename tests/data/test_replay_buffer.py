"""The ring: what it keeps, what follows what, and how far n steps reach."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from rl_training.config import CheckpointError, DatasetError
from rl_training.data import PrioritizedReplayBuffer, ReplayBuffer
from rl_training.data.replay.prioritized import SumTree


def filled(
    rewards: list[float],
    terminated: int | None = None,
    truncated: int | None = None,
    capacity: int = 8,
    **options: Any,
) -> ReplayBuffer:
    """One environment whose observation is its time."""
    buffer = ReplayBuffer(capacity, 1, 1, **options)
    for time, reward in enumerate(rewards):
        buffer.add_batch(
            [[time]], [[0.0]], [reward], [[time + 1]], [time == terminated], [time == truncated]
        )
    return buffer


@pytest.mark.parametrize(
    ("start", "terminated", "truncated", "total", "discount", "reached", "stops"),
    [
        (0, None, None, 5.23, 0.729, 3, 0),
        (0, 1, None, 2.8, 0.81, 2, 1),  # the termination, not the discount, ends it
        (0, None, 1, 2.8, 0.81, 2, 0),
        (2, None, None, 6.6, 0.81, 4, 0),  # two rewards are left
        (3, None, None, 4.0, 0.9, 4, 0),
    ],
)
def test_n_step_windows(
    start: int,
    terminated: int | None,
    truncated: int | None,
    total: float,
    discount: float,
    reached: int,
    stops: int,
) -> None:
    buffer = filled([1, 2, 3, 4], terminated, truncated, n_step=3, gamma=0.9)
    batch = buffer.gather(torch.tensor([start]))
    assert batch.rewards.item() == pytest.approx(total)
    assert batch.discounts is not None
    assert batch.discounts.item() == pytest.approx(discount)
    assert batch.next_obs.item() == reached
    assert batch.terminations.item() == stops
    assert batch.obs.item() == start


def test_n_step_windows_do_not_cross_the_write_pointer() -> None:
    """Times 0 to 10 in a ring of 8: the newest row, time 10, lies before the oldest, time 3."""
    buffer = filled([1.0] * 11, n_step=3, gamma=0.5)
    batch = buffer.gather(torch.arange(8))
    by_time = dict(zip(batch.obs.flatten().tolist(), batch.rewards.tolist(), strict=True))
    assert sorted(by_time) == list(range(3, 11))
    assert by_time[8] == 1.75
    assert by_time[9] == 1.5
    assert by_time[10] == 1.0


def test_n_step_windows_stay_in_their_environment() -> None:
    buffer = ReplayBuffer(64, 1, 1, num_envs=3, n_step=2, gamma=1.0)
    for time in range(4):
        values = np.array([100, 200, 300]) + time
        ends = np.array([False, time == 1, False])
        buffer.add_batch(
            values[:, None], np.zeros((3, 1)), values, values[:, None] + 1, ends, np.zeros(3)
        )
    batch = buffer.gather(torch.arange(12))
    found = dict(zip(batch.obs.flatten().tolist(), batch.rewards.tolist(), strict=True))
    assert found[100] == 201
    assert found[201] == 201  # it ended
    assert found[202] == 405
    assert found[303] == 303


@pytest.mark.parametrize("n_step", [2, 4])
@pytest.mark.parametrize(
    ("num_envs", "capacity"),
    [(envs, capacity) for envs in (1, 2, 3, 5) for capacity in range(envs, 3 * envs + 2)],
)
def test_n_step_windows_are_those_of_a_ring_written_out(
    num_envs: int, capacity: int, n_step: int
) -> None:
    """Rings from one step on, of all environments or of those that stepped."""
    rng = np.random.default_rng(capacity)
    buffer = ReplayBuffer(capacity, 1, 1, num_envs=num_envs, n_step=n_step, gamma=0.5)
    newest: dict[int, int] = {}  # row of each environment's running episode
    follows: dict[int, int] = {}  # by row, numbered as written; a row's reward is its number
    total = 0
    for _ in range(40):
        envs = np.sort(rng.permutation(num_envs)[: rng.integers(1, num_envs + 1)])
        numbers, ends = np.arange(total, total + len(envs)), rng.random(len(envs)) < 0.2
        total += len(envs)
        blank = np.zeros((len(envs), 1))
        columns = (numbers[:, None], blank, numbers, numbers[:, None] + 0.5)
        buffer.add_batch(*columns, ends, np.zeros(len(envs)), envs)
        for env, number, is_over in zip(envs.tolist(), numbers.tolist(), ends, strict=True):
            if env in newest:
                follows[newest.pop(env)] = number
            if not is_over:
                newest[env] = number
        batch = buffer.gather(torch.arange(len(buffer)))
        assert batch.discounts is not None
        found = torch.stack([batch.rewards, batch.next_obs[:, 0], batch.discounts], 1)
        by_number = dict(zip(batch.obs.flatten().tolist(), found.tolist(), strict=True))
        assert sorted(by_number) == list(range(total - len(buffer), total))
        for number, window in by_number.items():
            last, reward, discount = int(number), number, 0.5
            for _ in range(n_step - 1):
                if last not in follows:
                    break
                last = follows[last]
                reward, discount = reward + discount * last, discount / 2
            assert window == [reward, last + 0.5, discount]


def test_the_oldest_rows_make_room() -> None:
    buffer = ReplayBuffer(10, 1, 1, num_envs=4)
    for time in range(6):
        obs = np.full((4, 1), time)
        buffer.add_batch(obs, np.zeros((4, 1)), np.zeros(4), obs + 1, np.zeros(4), np.zeros(4))
    assert len(buffer) == 10
    kept = sorted(buffer._rows[:, 0].tolist())
    assert kept == [3, 3, 4, 4, 4, 4, 5, 5, 5, 5]


def test_a_log_has_each_environments_episodes_in_order() -> None:
    buffer = ReplayBuffer(20, 1, 1, num_envs=2)
    for time in range(12):  # 24 rows: the first four are gone
        obs = np.array([[time], [100 + time]])
        ends = np.array([time % 5 == 4, False])
        buffer.add_batch(obs, np.zeros((2, 1)), np.ones(2), obs + 1, ends, np.zeros(2))
    log = buffer.as_dataset()
    assert log.obs.flatten().tolist() == [*range(2, 12), *range(102, 112)]
    assert log.terminations.nonzero().flatten().tolist() == [2, 7]
    assert log.truncations.nonzero().flatten().tolist() == [9, 19]  # still running
    assert log.episode_returns.tolist() == [3, 5, 2, 10]


def test_discrete_actions_are_whole_numbers() -> None:
    buffer = ReplayBuffer(8, 2, 1, discrete=True, num_envs=3)
    buffer.add_batch(np.zeros((3, 2)), [2, 0, 1], np.zeros(3), np.zeros((3, 2)), [0] * 3, [0] * 3)
    batch = buffer.gather(torch.arange(3))
    assert batch.actions.dtype == torch.int64
    assert batch.actions.tolist() == [2, 0, 1]
    assert buffer.as_dataset().discrete


@pytest.mark.parametrize("cls", [ReplayBuffer, PrioritizedReplayBuffer])
@pytest.mark.parametrize("steps", [0, 5, 30])
def test_a_loaded_buffer_is_the_saved_one(cls: type[ReplayBuffer], steps: int) -> None:
    rng = np.random.default_rng(0)

    def write(buffer: ReplayBuffer, count: int, rng: np.random.Generator) -> None:
        for _ in range(count):
            obs = rng.random((2, 3))
            ends = rng.random(2) < 0.2
            buffer.add_batch(obs, rng.random((2, 1)), rng.random(2), obs, ends, np.zeros(2))
            if isinstance(buffer, PrioritizedReplayBuffer) and len(buffer) > 4:
                batch = buffer.sample(4, generator=torch.Generator().manual_seed(len(buffer)))
                assert batch.indices is not None
                buffer.update_priorities(batch.indices, torch.from_numpy(rng.random(4)))

    options: dict[str, Any] = {"num_envs": 2, "n_step": 3}
    buffer, again = cls(40, 3, 1, **options), cls(40, 3, 1, **options)
    write(buffer, steps, rng)
    saved = {key: value.clone() for key, value in buffer.state_dict().items()}
    assert len(saved["rows"]) == min(2 * steps, 40)
    again.load_state_dict(saved)
    state = rng.bit_generator.state
    for each in (buffer, again):
        rng.bit_generator.state = state
        write(each, 17, rng)
    for key, value in buffer.state_dict().items():
        assert torch.equal(value, again.state_dict()[key]), key
    draws = [b.sample(64, generator=torch.Generator().manual_seed(1)) for b in (buffer, again)]
    assert torch.equal(draws[0].obs, draws[1].obs)
    assert torch.equal(draws[0].rewards, draws[1].rewards)


def test_a_replay_of_another_shape_is_refused() -> None:
    saved = filled([1, 2, 3]).state_dict()
    with pytest.raises(CheckpointError, match=r"saved replay has shape \(3, 6\)"):
        ReplayBuffer(8, 2, 1).load_state_dict(saved)
    with pytest.raises(CheckpointError, match="does not fit a buffer of 2 rows"):
        ReplayBuffer(2, 1, 1).load_state_dict(saved)


def test_impossible_uses_say_why() -> None:
    with pytest.raises(ValueError, match="less than one row for each of 3"):
        ReplayBuffer(2, 1, 1, num_envs=3)
    with pytest.raises(DatasetError, match="empty"):
        ReplayBuffer(2, 1, 1).as_dataset()


def test_sampling_is_uniform_over_what_is_filled() -> None:
    buffer = filled([0.0] * 5, capacity=100)
    drawn = buffer.sample(5_000, generator=torch.Generator().manual_seed(0)).obs.flatten()
    shares = torch.bincount(drawn.long(), minlength=5) / 5_000
    torch.testing.assert_close(shares, torch.full((5,), 0.2), atol=0.02, rtol=0)


# -- priorities ----------------------------------------------------------------------------------


def test_draws_follow_priorities_and_weights_correct_them() -> None:
    buffer = PrioritizedReplayBuffer(16, 1, 1, exponent=1.0, correction=1.0)
    for time in range(4):
        buffer.add_batch([[time]], [[0.0]], [0.0], [[time]], [False], [False])
    buffer.update_priorities(torch.arange(4), torch.tensor([1.0, 2.0, 3.0, 4.0]))
    batch = buffer.sample(10_000, generator=torch.Generator().manual_seed(0))
    drawn = batch.obs.flatten().long()
    shares = torch.bincount(drawn, minlength=4) / 10_000
    torch.testing.assert_close(shares, torch.tensor([0.1, 0.2, 0.3, 0.4]), atol=0.01, rtol=0)
    assert batch.weights is not None
    # (N P)^-1, divided by the largest: 1, 1/2, 1/3, 1/4
    torch.testing.assert_close(batch.weights, 1.0 / (drawn + 1), atol=1e-4, rtol=0)


def test_a_new_row_has_the_largest_priority_seen() -> None:
    buffer = PrioritizedReplayBuffer(4, 1, 1, exponent=1.0)
    buffer.add_batch([[0]], [[0.0]], [0.0], [[0]], [False], [False])
    buffer.update_priorities(torch.tensor([0]), torch.tensor([-7.0]))
    buffer.add_batch([[1]], [[0.0]], [0.0], [[1]], [False], [False])
    assert buffer._tree.leaves[:2] == pytest.approx([7, 7], rel=1e-5)


def test_a_tree_built_anew_equals_the_updated_one() -> None:
    rng = np.random.default_rng(0)
    tree = SumTree(100)
    for _ in range(50):
        tree.update(rng.integers(0, 100, 16), rng.random(16))
    again = SumTree(100)
    again.update(np.arange(100), tree.leaves[:100].copy())
    assert all(np.array_equal(a, b) for a, b in zip(tree.levels, again.levels, strict=True))
    # every mass finds its leaf, also at the very end
    edges = np.concatenate([[0], np.cumsum(tree.leaves)])
    masses = rng.random(1_000) * tree.total
    found = tree.find(masses)
    assert (masses >= edges[found] - 1e-9).all()
    assert (masses <= edges[found + 1] + 1e-9).all()
    assert tree.leaves[tree.find(np.array([tree.total]))] > 0


def test_a_copy_of_a_buffer_is_written_and_read_by_itself() -> None:
    original = ReplayBuffer(8, 1, 1)
    rows = np.arange(3 * original.layout.width, dtype=np.float32).reshape(3, -1)
    original.add_rows(rows, np.zeros(3, np.int64))
    original.sample(2, generator=None)
    other = copy.deepcopy(original)
    other.add_rows(-rows, np.zeros(3, np.int64))
    assert len(original) == 3
    assert torch.equal(
        other.rows_at(torch.arange(6)), torch.from_numpy(np.concatenate([rows, -rows]))
    )
    batch = other.sample(2, generator=None)
    assert len(batch) == 2
    assert batch.obs.data_ptr() != original.sample(2, generator=None).obs.data_ptr()
