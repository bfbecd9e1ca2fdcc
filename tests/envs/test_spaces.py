import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.spaces import Box, Discrete

from rl_training.config import EnvError
from rl_training.envs import (
    ActionScaler,
    infer_env_spaces,
    make_vector_env,
    problem_spec,
    to_env_action,
    to_unit_action,
)
from rl_training.spec import ProblemSpec

OBS = Box(-np.inf, np.inf, (3,), np.float32)
ACT = Box(-2.0, 2.0, (1,), np.float32)
PENDULUM = ProblemSpec(3, "continuous", 1, (-2.0,), (2.0,))


def test_spec_is_the_same_from_id_env_and_vector_env():
    vector = make_vector_env("Pendulum-v1", 2)
    for source in ("Pendulum-v1", gym.make("Pendulum-v1"), vector):
        assert infer_env_spaces(source) == PENDULUM


def test_discrete_actions_keep_their_count_and_start():
    assert problem_spec(OBS, Discrete(4, start=2)) == ProblemSpec(3, "discrete", 4, action_start=2)
    assert infer_env_spaces("CartPole-v1") == ProblemSpec(4, "discrete", 2)


def test_double_precision_observations_are_supported():
    assert problem_spec(Box(-1, 1, (5,), np.float64), ACT).obs_dim == 5


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (Box(0, 255, (96, 96, 3), np.uint8), "image observations are not supported.*96, 96, 3"),
        (Box(0, 255, (84, 84), np.uint8), "image observations are not supported"),
        (spaces.Dict(a=OBS), "Dict observations.*FlattenObservation"),
        (spaces.Tuple([OBS, OBS]), "Tuple observations.*FlattenObservation"),
        (Box(-1, 1, (2, 3), np.float32), "one-dimensional, not 2-dim.*FlattenObservation"),
        (Box(-1, 1, (), np.float32), "one-dimensional, not 0-dim"),
        (Box(-1, 1, (0,), np.float32), "observations are empty"),
        (Box(-1, 1, (3,), np.int64), "floats, not int64.*DtypeObservation"),
        (Discrete(16), r"one-hot.*FlattenObservation.*Discrete\(16\)"),
        (spaces.MultiBinary(3), "one-hot.*FlattenObservation"),
        (spaces.Text(3), "Text observations are not supported"),
    ],
)
def test_unsupported_observations_say_what_to_do(space, words):
    with pytest.raises(EnvError, match=f"^Mine-v0: .*{words}") as caught:
        problem_spec(space, ACT, "Mine-v0")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (spaces.MultiDiscrete([2, 3]), "MultiDiscrete actions.*one Discrete space"),
        (spaces.MultiBinary(3), "MultiBinary actions.*one Discrete space"),
        (spaces.Dict(a=ACT), "Dict actions are not supported"),
        (Box(-1, 1, (2, 2), np.float32), r"one-dimensional, not of shape \(2, 2\)"),
        (Box(-1, 1, (2,), np.int32), "floats, not int32"),
        (Box(-np.inf, np.inf, (2,), np.float32), "must be bounded.*RescaleAction"),
        (Box(-3.4e38, 3.4e38, (2,), np.float32), "must be bounded"),
    ],
)
def test_unsupported_actions_say_what_to_do(space, words):
    with pytest.raises(EnvError, match=words) as caught:
        problem_spec(OBS, space)
    assert "\n" not in str(caught.value)


def test_wide_space_is_shortened_in_the_error():
    wide = Box(np.arange(500.0), np.inf, dtype=np.float64)
    with pytest.raises(EnvError) as caught:
        problem_spec(spaces.Dict(a=wide), ACT)
    assert len(str(caught.value)) < 400


def test_action_scaling_meets_the_bounds_and_comes_back():
    spec = ProblemSpec(1, "continuous", 3, (-2.0, 0.0, -0.3), (2.0, 1.0, 0.7))
    unit = np.array([[-1, -1, -1], [1, 1, 1], [0, 0, 0], [0.3, -0.6, 0.9]], np.float32)
    env = to_env_action(unit, spec)
    np.testing.assert_allclose(env[0], spec.action_low, rtol=1e-6)
    np.testing.assert_allclose(env[1], spec.action_high, rtol=1e-6)
    np.testing.assert_allclose(to_unit_action(env, spec), unit, atol=1e-6)
    assert env.dtype == np.float32


def test_actions_outside_are_clipped_both_ways():
    scaler = ActionScaler(PENDULUM)
    assert scaler.to_env([5.0]).tolist() == [2.0]
    assert scaler.to_env([-5.0]).tolist() == [-2.0]
    assert scaler.to_unit([9.0]).tolist() == [1.0]
    assert ACT.contains(scaler.to_env(np.array([1.0000001], np.float32)))


def test_dimension_with_one_value_scales_to_it_and_back_to_zero():
    spec = problem_spec(OBS, Box(np.array([1.0, -1.0]), np.array([1.0, 1.0]), dtype=np.float64))
    scaler = ActionScaler(spec)
    assert scaler.to_env([0.7, 0.5]).tolist() == [1.0, 0.5]
    assert scaler.to_unit([1.0, 0.5]).tolist() == [0.0, 0.5]


def test_choices_are_moved_by_their_start():
    space = Discrete(3, start=5)
    scaler = ActionScaler(problem_spec(OBS, space))
    assert space.contains(scaler.to_env(2))
    assert scaler.to_env(np.array([0, 2])).tolist() == [5, 7]
    assert scaler.to_unit(np.array([5, 7])).tolist() == [0, 2]
