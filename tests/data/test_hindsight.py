"""Hindsight: which goals a transition may get, and what it earns for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rl_training.config import CheckpointError
from rl_training.data import HERReplayBuffer

THRESHOLD = 0.05
# achieved goals of one episode, from its first observation to its last
EPISODE = np.array([[0, 0], [0.3, 0], [0.6, 0], [0.6, 0.04]], np.float32)
ASKED = np.array([[9.0, 9.0]], np.float32)


def reward(achieved: Any, desired: Any) -> Any:
    return -(np.linalg.norm(achieved - desired, axis=-1) > THRESHOLD).astype(np.float64)


def hand_made(**options: Any) -> HERReplayBuffer:
    """One episode of three steps; observation t is (t,)."""
    obs_dim = 5 if options.get("sees_achieved_goal", True) else 3
    buffer = HERReplayBuffer(8, obs_dim, 1, goal_dim=2, compute_reward=reward, **options)
    for t in range(3):
        before, after = (
            {"observation": [[k]], "achieved_goal": EPISODE[[k]], "desired_goal": ASKED}
            for k in (t, t + 1)
        )
        buffer.add_batch(before, [[0.0]], [-1.0], after, [False], [t == 2])
    return buffer


@pytest.mark.parametrize(("scale", "warned"), [(1.0, False), (10.0, True)])
def test_rewards_of_another_kind_than_collected_ones_are_warned_of_once(
    scale: float, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    buffer = HERReplayBuffer(
        8, 5, 1, goal_dim=2, compute_reward=lambda *goals: scale * reward(*goals)
    )
    obs = {"observation": [[0.0]], "achieved_goal": EPISODE[:1], "desired_goal": ASKED}
    for _ in range(3):
        buffer.add_batch(obs, [[0.0]], [-1.0], obs, [False], [False])
    said = ["reward of -1 where compute_reward gives -10" in line for line in caplog.messages]
    assert said == [True] * warned


@pytest.mark.parametrize(
    ("step", "source", "goal", "earned"),
    [
        (0, 0, (0.3, 0.0), 0.0),  # its own outcome
        (0, 2, (0.6, 0.04), -1.0),  # 0.302655 away
        (1, 1, (0.6, 0.0), 0.0),
        (1, 2, (0.6, 0.04), 0.0),  # 0.04 away, within the threshold
        (2, 0, (0.3, 0.0), -1.0),
    ],
)
@pytest.mark.parametrize("sees_achieved_goal", [True, False])
def test_a_new_goal_replaces_the_old_one_everywhere(
    step: int, source: int, goal: tuple[float, float], earned: float, sees_achieved_goal: bool
) -> None:
    buffer = hand_made(sees_achieved_goal=sees_achieved_goal)
    rows = buffer._rows[[step, step]].clone()
    buffer.relabel(rows, torch.tensor([1]), torch.tensor([source]))
    layout = buffer.layout
    assert torch.equal(rows[0], buffer._rows[step])  # only the one that was asked for
    assert rows[1, layout.goal].tolist() == pytest.approx(goal)
    assert rows[1, layout.next_goal].tolist() == pytest.approx(goal)
    assert rows[1, layout.reward] == earned
    assert torch.equal(rows[1, layout.achieved], torch.from_numpy(EPISODE[step + 1]))
    if sees_achieved_goal:
        assert torch.equal(rows[1, 3:5], torch.from_numpy(EPISODE[step]))
    changed = {*range(1, 3), *range(layout.next_goal.start, layout.next_goal.stop), layout.reward}
    same = [column for column in range(layout.width) if column not in changed]
    assert torch.equal(rows[1, same], rows[0, same])


def test_an_episode_ends_where_it_would_with_the_new_goal() -> None:
    """All pairs of a step and a goal of three episodes, against the rule written out."""

    def terminated(achieved: Any, desired: Any) -> Any:
        return np.linalg.norm(achieved - desired, axis=-1) <= THRESHOLD

    buffer = HERReplayBuffer(
        12, 5, 1, goal_dim=2, compute_reward=reward, compute_terminated=terminated
    )
    # the first episode reaches its goal, the second one falls over, the third one runs out of time
    asked = {0: (0.6, 0.04), 1: (9.0, 9.0), 2: (9.0, 9.0)}
    for episode in range(3):
        goal = np.array([asked[episode]], np.float32)
        for t in range(3):
            views = [
                {"observation": [[k]], "achieved_goal": EPISODE[[k]], "desired_goal": goal}
                for k in (t, t + 1)
            ]
            ends, late = t == 2 and episode < 2, t == 2 and episode == 2
            buffer.add_batch(views[0], [[0.0]], [-1.0], views[1], [ends], [late])
    layout = buffer.layout
    for row in range(9):
        for source in range(9):
            rows = buffer._rows[[row]].clone()
            buffer.relabel(rows, torch.tensor([0]), torch.tensor([source]))
            episode, outcome, goal = row // 3, EPISODE[row % 3 + 1], EPISODE[source % 3 + 1]
            reached = np.linalg.norm(outcome - goal) <= THRESHOLD
            fell = episode == 1 and row % 3 == 2  # far from its goal, so for another reason
            assert rows[0, layout.termination] == float(reached or fell)
            late = episode == 2 and row % 3 == 2
            assert rows[0, layout.truncation] == float(late and not reached)
            assert rows[0, layout.reward] == (0.0 if reached else -1.0)
    assert buffer._rows[:9, layout.termination].tolist() == [0, 0, 1, 0, 0, 1, 0, 0, 0]


def drawn_goals(buffer: HERReplayBuffer, rows: int = 4_000, seed: int = 0) -> dict[int, set[Any]]:
    """By the time in an observation: the goals that were drawn for it."""
    batch = buffer.sample(rows, generator=torch.Generator().manual_seed(seed))
    assert torch.equal(batch.obs[:, 1:3], batch.next_obs[:, 1:3])
    found: dict[int, set[Any]] = {}
    for time, *goal in batch.obs[:, :3].tolist():
        found.setdefault(int(time), set()).add(tuple(round(value, 3) for value in goal))
    return found


A, B, C = (0.3, 0.0), (0.6, 0.0), (0.6, 0.04)


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("future", {0: {A, B, C}, 1: {B, C}, 2: {C}}),
        ("final", {0: {C}, 1: {C}, 2: {C}}),
        ("episode", {0: {A, B, C}, 1: {A, B, C}, 2: {A, B, C}}),
    ],
)
def test_strategies(strategy: Any, expected: Any) -> None:
    assert drawn_goals(hand_made(her_ratio=1.0, goal_selection_strategy=strategy)) == expected


def test_future_goals_are_uniform() -> None:
    buffer = hand_made(her_ratio=1.0)
    sources = buffer.choose(
        torch.zeros(30_000, dtype=torch.int64), torch.Generator().manual_seed(0)
    )
    shares = torch.bincount(sources, minlength=3) / 30_000
    torch.testing.assert_close(shares, torch.full((3,), 1 / 3), atol=0.01, rtol=0)


@pytest.mark.parametrize("ratio", [0.0, 0.5, 0.8, 1.0])
def test_the_ratio_is_the_share_of_new_goals(ratio: float) -> None:
    batch = hand_made(her_ratio=ratio).sample(20_000, generator=torch.Generator().manual_seed(1))
    asked = (batch.obs[:, 1:3] == 9).all(1)
    assert 1 - asked.float().mean().item() == pytest.approx(ratio, abs=0.01)
    assert (batch.rewards[asked] == -1).all()
    # one batch may serve several updates, each of which must have its share
    for part in batch.parts(20):
        assert (part.obs[:, 1] != 9).float().mean().item() == pytest.approx(ratio, abs=0.06)


def test_rewards_belong_to_the_goals_in_the_batch() -> None:
    buffer = story(HERReplayBuffer(60, 6, 1, goal_dim=2, compute_reward=reward, num_envs=3), 45)
    batch = buffer.sample(2_000, generator=torch.Generator().manual_seed(2))
    outcome, goal = batch.next_obs[:, :2], batch.next_obs[:, 2:4]  # the state is what is achieved
    assert torch.equal(outcome, batch.next_obs[:, 4:])
    new = goal[:, 0] != 9
    expected = torch.from_numpy(reward(outcome.numpy(), goal.numpy())).float()
    assert torch.equal(batch.rewards[new], expected[new])
    assert 0 < (expected[new] == 0).float().mean() < 1


def lengths(env: int) -> Any:
    """Episode lengths of an environment: 1 to 9, another order for each."""
    rng = np.random.default_rng(env)
    while True:
        yield int(rng.integers(1, 10))


def story(buffer: HERReplayBuffer, steps: int, log: Any = None) -> HERReplayBuffer:
    """Environments side by side; a state tells environment, episode and time (env, 100 ep + t)."""
    sources = [lengths(env) for env in range(buffer.num_envs)]
    length = [next(source) for source in sources]
    episode, time = [0] * buffer.num_envs, [0] * buffer.num_envs
    for _ in range(steps):
        now = np.array([[e, 100 * episode[e] + time[e]] for e in range(buffer.num_envs)], float)
        after = now + np.array([0, 1])
        ends = np.array([time[e] + 1 == length[e] for e in range(buffer.num_envs)])
        goal = np.full_like(now, 9)
        views = [{"observation": s, "achieved_goal": s, "desired_goal": goal} for s in (now, after)]
        zeros = np.zeros(buffer.num_envs)
        buffer.add_batch(views[0], zeros[:, None], zeros - 1, views[1], ends & False, ends)
        for e in range(buffer.num_envs):
            if log is not None:
                log.append((e, episode[e], time[e]))
            time[e] += 1
            if ends[e]:
                episode[e], time[e], length[e] = episode[e] + 1, 0, next(sources[e])
    return buffer


@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("steps", [1, 2, 7, 14, 15, 16, 40, 77, 300])
def test_goals_come_from_held_rows_of_the_same_episode(
    strategy: Any, num_envs: int, steps: int
) -> None:
    """Running episodes, several environments, and a ring of 15 steps that goes round."""
    buffer = HERReplayBuffer(
        15 * num_envs + num_envs - 1,  # what is left over cannot hold a step
        6,
        1,
        goal_dim=2,
        compute_reward=reward,
        goal_selection_strategy=strategy,
        num_envs=num_envs,
    )
    log: list[tuple[int, int, int]] = []
    story(buffer, steps, log)
    assert len(buffer) == min(steps, 15) * num_envs
    held = log[-len(buffer) :]
    by_episode: dict[tuple[int, int], list[int]] = {}
    for env, episode, time in held:
        by_episode.setdefault((env, episode), []).append(time)
    where = torch.arange(len(buffer)).repeat(200)
    sources = buffer.choose(where, torch.Generator().manual_seed(steps))
    states = buffer._rows[:, :2].long()
    chosen: dict[tuple[int, int, int], set[int]] = {}
    for row, source in zip(where.tolist(), sources.tolist(), strict=True):
        (env, code), (source_env, source_code) = states[row].tolist(), states[source].tolist()
        assert (env, code // 100) == (source_env, source_code // 100)
        chosen.setdefault((env, code // 100, code % 100), set()).add(source_code % 100)
    assert set(chosen) == set(held)
    for (env, episode, time), found in chosen.items():
        times = by_episode[env, episode]
        expected = {
            "future": {t for t in times if t >= time},
            "final": {max(times)},
            "episode": set(times),
        }[strategy]
        assert found == expected


@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
def test_every_relabelled_transition_is_drawn_as_often_as_enumerated(strategy: Any) -> None:
    """All transitions with all goals that they may get, their rewards and their chances."""
    ratio, draws = 0.75, 60_000
    buffer = HERReplayBuffer(
        16, 6, 1, goal_dim=2, compute_reward=reward, her_ratio=ratio,
        goal_selection_strategy=strategy, num_envs=2,
    )  # fmt: skip
    log: list[tuple[int, int, int]] = []
    story(buffer, 11, log)  # of which the last eight steps are held
    held = log[-len(buffer) :]
    chances: dict[tuple[float, ...], float] = {}
    for env, episode, time in held:
        state, after = (env, 100 * episode + time), (env, 100 * episode + time + 1)
        times = [t for e, k, t in held if (e, k) == (env, episode)]
        goals = {"future": [t for t in times if t >= time], "final": times[-1:], "episode": times}
        outcomes = [((9, 9), -1.0, 1 - ratio)]
        for t in goals[strategy]:
            goal = (env, 100 * episode + t + 1)
            outcomes.append((goal, 0.0 if t == time else -1.0, ratio / len(goals[strategy])))
        for goal, earned, chance in outcomes:
            row = (*state, *goal, *state, *after, *goal, *after, earned, 0)
            chances[row] = chances.get(row, 0.0) + chance / len(held)
    assert sum(chances.values()) == pytest.approx(1)
    batch = buffer.sample(draws, generator=torch.Generator().manual_seed(3))
    scalars = torch.stack([batch.rewards, batch.terminations], 1)
    rows, counts = torch.cat([batch.obs, batch.next_obs, scalars], 1).unique(
        dim=0, return_counts=True
    )
    found = {
        tuple(row): count / draws for row, count in zip(rows.tolist(), counts.tolist(), strict=True)
    }
    assert found.keys() == chances.keys()
    for row, chance in chances.items():
        deviation = (chance * (1 - chance) / draws) ** 0.5
        assert abs(found[row] - chance) < 5 * deviation, row


def test_an_episode_that_is_given_up_is_not_mixed_with_the_next() -> None:
    buffer = HERReplayBuffer(9, 5, 1, goal_dim=2, compute_reward=reward, her_ratio=1.0)
    for t in range(4):
        view = {
            "observation": [[t]],
            "achieved_goal": np.full((1, 2), t),
            "desired_goal": ASKED,
        }
        buffer.add_batch(view, [[0.0]], [-1.0], view, [False], [False])
        if t == 1:
            buffer.begin_episode(0)
    assert drawn_goals(buffer) == {0: {(0, 0), (1, 1)}, 1: {(1, 1)}, 2: {(2, 2), (3, 3)}, 3: {(3, 3)}}  # fmt: skip


@pytest.mark.parametrize("steps", [0, 5, 40])
def test_a_loaded_buffer_is_the_saved_one(steps: int) -> None:
    def make() -> HERReplayBuffer:
        return HERReplayBuffer(60, 6, 1, goal_dim=2, compute_reward=reward, num_envs=3)

    whole, again = make(), make()
    story(whole, steps)
    again.load_state_dict({key: value.clone() for key, value in whole.state_dict().items()})
    for buffer in (whole, again):
        if steps == 5:
            buffer.begin_episode(1)
        story(buffer, 9)
    for key, value in whole.state_dict().items():
        assert torch.equal(value, again.state_dict()[key]), key
    draws = [b.sample(256, generator=torch.Generator().manual_seed(1)) for b in (whole, again)]
    for name in ("obs", "next_obs", "rewards"):
        assert torch.equal(getattr(draws[0], name), getattr(draws[1], name))


def test_a_replay_of_another_shape_is_refused() -> None:
    saved = story(HERReplayBuffer(9, 6, 1, goal_dim=2, her_ratio=0.0, num_envs=3), 5).state_dict()
    for capacity, num_envs, reason in ((60, 3, "9 of 15 rows"), (9, 1, "not one of 1 env")):
        other = HERReplayBuffer(capacity, 6, 1, goal_dim=2, her_ratio=0.0, num_envs=num_envs)
        with pytest.raises(CheckpointError, match=reason):
            other.load_state_dict(saved)


def test_the_log_has_the_goals_that_were_asked_for() -> None:
    log = hand_made().as_dataset()
    assert log.obs[:, :3].tolist() == [[0, 9, 9], [1, 9, 9], [2, 9, 9]]
    assert torch.equal(log.obs[:, 3:], torch.from_numpy(EPISODE[:3]))
    assert log.rewards.tolist() == [-1, -1, -1]
    assert log.truncations.tolist() == [False, False, True]


def test_impossible_uses_say_why() -> None:
    with pytest.raises(ValueError, match="cannot hold a goal of 3"):
        HERReplayBuffer(8, 6, 1, goal_dim=3, compute_reward=reward)
    with pytest.raises(ValueError, match="need compute_reward"):
        HERReplayBuffer(8, 5, 1, goal_dim=2)
    with pytest.raises(ValueError, match="unknown goal_selection_strategy 'past'"):
        HERReplayBuffer(8, 5, 1, goal_dim=2, her_ratio=0.0, goal_selection_strategy="past")  # type: ignore[arg-type]
    buffer = HERReplayBuffer(8, 5, 1, goal_dim=2, her_ratio=0.0, num_envs=2)
    with pytest.raises(ValueError, match=r"one row of each of 2 environments.*got rows of \[1\]"):
        buffer.add_rows(buffer.new_rows(1), np.array([1]))
    with pytest.raises(TypeError, match="observations are mappings"):
        buffer.add_batch([[0, 0, 0]], [[0]], [0], [[0, 0, 0]], [0], [0])
