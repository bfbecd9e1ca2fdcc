"""Environments with goals: the two of this package, their observations as vectors, their rewards."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from rl_training.config import EnvError
from rl_training.envs import (
    FlatGoals,
    GoalReward,
    has_goals,
    infer_env_spaces,
    make_env,
    make_vector_env,
    problem_spec,
    without_goals,
)
from rl_training.spec import ProblemSpec, flat_goals

POINT, BITS = "RL-PointGoal-v0", "RL-BitFlip-v0"


@pytest.mark.parametrize(
    ("env_id", "options"), [(POINT, {}), (POINT, {"dimensions": 3}), (BITS, {"bits": 5})]
)
def test_they_are_environments_as_gymnasium_wants_them(env_id: str, options: Any) -> None:
    check_env(make_env(env_id, options).unwrapped, skip_render_check=True)


def test_a_point_moves_by_a_tenth_and_stays_in_its_box() -> None:
    env = make_env(POINT, {"dimensions": 3}).unwrapped
    env.reset(seed=0)
    env.state = np.array([0.0, 0.95, -0.3], np.float32)
    obs, *_ = env.step(np.array([1.0, 1.0, -0.5], np.float32))
    np.testing.assert_allclose(obs["achieved_goal"], [0.1, 1.0, -0.35], rtol=1e-6)
    assert obs["achieved_goal"] is not env.state
    obs, *_ = env.step(np.array([99.0, 0.0, 0.0]))
    np.testing.assert_allclose(obs["observation"], [0.2, 1.0, -0.35], rtol=1e-6)


def test_a_point_is_rewarded_within_the_threshold() -> None:
    env = make_env(POINT).unwrapped
    achieved = np.array([[0, 0], [0.3, 0], [0.6, 0], [0.6, 0.04], [0.6, 0.06]], np.float32)
    goal = np.array([0.6, 0.0], np.float32)
    assert env.compute_reward(achieved, goal, {}).tolist() == [-1, -1, 0, 0, -1]
    assert env.compute_reward(goal, goal, {}) == 0
    exact = make_env(POINT, {"threshold": 0.25, "dimensions": 1}).unwrapped
    assert exact.compute_reward(np.array([0.25]), np.array([0.0]), {}) == 0  # at it is within


def episode(env: gym.Env[Any, Any], act: Any) -> tuple[list[float], dict[str, Any], bool]:
    obs, _ = env.reset(seed=3)
    rewards: list[float] = []
    while True:
        obs, reward, terminated, truncated, info = env.step(act(obs))
        rewards.append(float(reward))
        assert info["is_success"] == (reward == 0)
        if terminated or truncated:
            return rewards, info, terminated


def test_a_point_that_goes_straight_arrives_and_the_time_limit_ends_it() -> None:
    rewards, info, terminated = episode(
        make_env(POINT), lambda obs: np.clip(10 * (obs["desired_goal"] - obs["achieved_goal"]), -1, 1)
    )  # fmt: skip
    assert (len(rewards), terminated, info["is_success"]) == (50, False, True)
    arrived = rewards.index(0)
    assert arrived <= 20
    assert set(rewards[arrived:]) == {0}


def test_bits_are_flipped_one_by_one() -> None:
    def first_wrong(obs: Any) -> int:
        return int((obs["achieved_goal"] != obs["desired_goal"]).argmax())

    rewards, _, terminated = episode(make_env(BITS, {"bits": 8}), first_wrong)
    assert (len(rewards), terminated) == (8, False)
    assert 0 in rewards
    env = make_env(BITS, {"bits": 3}).unwrapped
    states = np.array([[0, 1, 1], [0, 1, 0]], np.float32)
    assert env.compute_reward(states, states[0], {}).tolist() == [0, -1]


@pytest.mark.parametrize(
    ("env_id", "options", "message"),
    [
        (POINT, {"dimensions": 0}, "dimensions must be >= 1"),
        (POINT, {"threshold": 0}, "threshold must be > 0"),
        (POINT, {"dimension": 2}, "did you mean 'dimensions'"),
        (BITS, {"bits": 0}, "bits must be >= 1"),
    ],
)
def test_wrong_options_are_named(env_id: str, options: Any, message: str) -> None:
    with pytest.raises(EnvError, match=message):
        make_env(env_id, options)


def test_goals_are_seen_beside_the_observation() -> None:
    assert infer_env_spaces(POINT) == ProblemSpec(6, "continuous", 2, (-1, -1), (1, 1), goal_dim=2)
    assert infer_env_spaces(BITS, {"bits": 7}) == ProblemSpec(21, "discrete", 7, goal_dim=7)
    env = make_env(POINT)
    obs, _ = env.reset(seed=1)
    assert has_goals(env.observation_space)
    flat, _ = FlatGoals(make_env(POINT)).reset(seed=1)
    parts = [obs["observation"], obs["desired_goal"], obs["achieved_goal"]]
    assert flat.tolist() == np.concatenate(parts).tolist()
    assert without_goals(make_env(POINT)).reset(seed=1)[0].tolist() == flat_goals(obs).tolist()
    short, _ = without_goals(make_env(POINT), achieved=False).reset(seed=1)
    assert short.tolist() == flat[:4].tolist() == flat_goals(obs, achieved=False).tolist()
    plain = make_env("Pendulum-v1")
    assert without_goals(plain) is plain
    with pytest.raises(ValueError, match="desired_goal is missing"):
        flat_goals({"observation": [1.0]})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"achieved_goal": (3,)}, "achieved_goal and desired_goal must have the same shape"),
        ({"observation": (8, 8, 3)}, "image observations"),
        ({"extra": (2,)}, "Dict observations are not supported"),
    ],
)
def test_goal_observations_that_cannot_be_used(changes: Any, message: str) -> None:
    shapes = {"observation": (4,), "achieved_goal": (2,), "desired_goal": (2,), **changes}
    space = gym.spaces.Dict(
        {key: gym.spaces.Box(-1, 1, shape, np.float32) for key, shape in shapes.items()}
    )
    with pytest.raises(EnvError, match=message):
        problem_spec(space, gym.spaces.Discrete(2), "Mine-v0")


@pytest.mark.parametrize("asynchronous", [False, True])
def test_vector_environments_know_them_also_in_processes(asynchronous: bool) -> None:
    for goals, width in ((True, 6), (False, 4)):
        envs = make_vector_env(POINT, 2, asynchronous=asynchronous, goals=goals, episode_seed=1)
        try:
            assert envs.reset()[0].shape == (2, width)
        finally:
            envs.close()


def test_registering_them_takes_no_torch() -> None:
    code = (
        "import sys, rl_training.envs as e; e.make_env('RL-PointGoal-v0'); "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# -- rewards in hindsight ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shaping", "expected"),
    [
        ({}, [0, -1]),
        ({"scale": 2.0, "shift": 0.5}, [0.5, -1.5]),
        ({"scale": 10.0, "clip_min": -3.0}, [0, -3]),
        ({"shift": 1.0, "clip_max": 0.5}, [0.5, 0]),
    ],
)
def test_rewards_go_through_the_wrappers_of_training(shaping: Any, expected: Any) -> None:
    kwargs = {"wrappers": {"reward": shaping}, "evaluation": {"wrappers": {"reward": {"scale": 7}}}}
    goals = np.zeros((2, 2), np.float32)
    achieved = np.array([[0, 0.01], [0, 0.5]], np.float32)
    rewards = GoalReward(POINT, kwargs, 2)(achieved, goals)
    assert rewards.dtype == np.float32
    assert rewards.tolist() == expected
    # and they are those that the wrapped environment gives
    env = make_env(POINT, {**kwargs, "training": {"threshold": 1e-6}})
    env.reset(seed=0)
    assert env.step(np.zeros(2, np.float32))[1] == expected[1]


class Goals(gym.Env[Any, Any]):
    """Goals without a reward for others."""

    part = gym.spaces.Box(-1, 1, (2,), np.float32)
    observation_space = gym.spaces.Dict(observation=part, achieved_goal=part, desired_goal=part)
    action_space = gym.spaces.Discrete(2)


class OneByOne(Goals):
    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> float:
        return -float(np.linalg.norm(achieved - desired))


class Episodic(Goals):
    """Ends at the goal, for many pairs at once."""

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return -np.linalg.norm(achieved - desired, axis=-1)

    def compute_terminated(self, achieved: Any, desired: Any, info: Any) -> Any:
        return np.linalg.norm(achieved - desired, axis=-1) <= 0.45


class EpisodicMaze(Episodic):
    """Ends at the goal, for one pair at a time, as the mazes of gymnasium-robotics do."""

    def compute_terminated(self, achieved: Any, desired: Any, info: Any) -> bool:
        return bool(np.linalg.norm(achieved - desired) <= 0.45)


class EpisodicBranch(Episodic):
    """Ends at the goal, and fails for many pairs."""

    def compute_terminated(self, achieved: Any, desired: Any, info: Any) -> bool:
        if np.abs(achieved - desired).max(-1) > 0.45:
            return False
        return bool(np.linalg.norm(achieved - desired) <= 0.45)


@pytest.mark.parametrize("name", ["Episodic", "EpisodicMaze", "EpisodicBranch"])
def test_terminations_in_hindsight_are_those_of_each_pair(name: str) -> None:
    rewards = GoalReward(f"tests.envs.test_goals:{name}", {}, 2)
    grid = np.stack(np.meshgrid([-1.0, -0.3, 0.0, 0.4], [-0.2, 0.2, 0.9]), -1).reshape(-1, 2)
    achieved, desired = (
        a.reshape(-1, 2).astype(np.float32) for a in np.broadcast_arrays(grid[:, None], grid)
    )
    ends = rewards.terminated(achieved, desired)
    near = [bool(np.linalg.norm(a - d) <= 0.45) for a, d in zip(achieved, desired, strict=True)]
    assert rewards.knows_terminations
    assert ends.dtype == np.float32
    assert ends.tolist() == near
    assert 0 < sum(near) < len(near)


def test_an_environment_may_know_no_terminations() -> None:
    assert not GoalReward(POINT, {}, 2).knows_terminations


class OddEnds(Episodic):
    def compute_terminated(self, achieved: Any, desired: Any, info: Any) -> Any:
        return achieved <= desired


class FailingEnds(Episodic):
    def compute_terminated(self, achieved: Any, desired: Any, info: Any) -> Any:
        return info["fallen"]


class NoEnds(Episodic):
    compute_terminated = None  # type: ignore[assignment]


def test_compute_terminated_that_is_switched_off_is_none() -> None:
    assert not GoalReward("tests.envs.test_goals:NoEnds", {}, 2).knows_terminations


class Failing(Goals):
    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> float:
        return float(info["energy"])


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("Goals", EnvError, "her: true needs rewards for other goals, but .* has no method"),
        ("OneByOne", EnvError, r"gives shape \(\) for 3 goals; it must be vectorised"),
        (
            "Failing",
            EnvError,
            "compute_reward with .* an empty info; .* failed: KeyError: 'energy'",
        ),
        ("OddEnds", EnvError, r"compute_terminated of .*OddEnds to give .* gives shape \(2,\)"),
        ("FailingEnds", EnvError, "compute_terminated with .* failed: KeyError: 'fallen'"),
    ],
)
def test_rewards_that_cannot_be_had_in_hindsight(name: str, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        GoalReward(f"tests.envs.test_goals:{name}", {}, 2)
