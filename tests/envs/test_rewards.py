import gymnasium as gym
import numpy as np
import pytest

from rl_training.config import ConfigError
from rl_training.envs import (
    RewardClipWrapper,
    RewardScaleWrapper,
    RewardShiftWrapper,
    RewardTransformConfig,
    apply_reward_wrappers,
    make_env,
)
from rl_training.envs.errors import InterfaceError
from rl_training.envs.rollout import roll_out

ALL = {"scale": 2.0, "shift": 3.0, "clip_min": -1.0, "clip_max": 1.5}


def rewards_of(env: gym.Env, steps: int = 20) -> list[float]:
    env.reset(seed=3)
    return [float(env.step(np.zeros(1, np.float32))[1]) for _ in range(steps)]


def test_order_is_scale_then_shift_then_clip():
    config = RewardTransformConfig(**ALL)
    assert [config.apply(r) for r in (-10.0, -1.0, 10.0)] == [-1.0, 1.0, 1.5]


def test_array_and_single_rewards_are_shaped_alike():
    config = RewardTransformConfig(**ALL)
    raw = np.linspace(-5, 5, 11)
    assert config.apply(raw).tolist() == [config.apply(float(r)) for r in raw]


def test_one_sided_clip_leaves_the_other_side_open():
    config = RewardTransformConfig(clip_max=1.0)
    assert config.apply(-1e6) == -1e6
    assert config.apply(np.array([-1e6, 5.0])).tolist() == [-1e6, 1.0]


def test_identity_is_recognised():
    assert RewardTransformConfig().is_identity
    assert not RewardTransformConfig(clip_min=0.0).is_identity


def test_wrappers_give_what_the_config_computes():
    raw = np.array(rewards_of(gym.make("Pendulum-v1")))
    config = RewardTransformConfig(**ALL)
    shaped = rewards_of(apply_reward_wrappers(gym.make("Pendulum-v1"), config))
    np.testing.assert_allclose(shaped, config.apply(raw))


def test_only_wrappers_that_do_something_are_added():
    env = gym.make("Pendulum-v1")
    assert apply_reward_wrappers(env, None) is env
    assert apply_reward_wrappers(env, {"scale": 1.0, "shift": 0.0}) is env
    assert isinstance(apply_reward_wrappers(env, {"shift": 1.0}).env, type(env))


@pytest.mark.parametrize(
    "wrap",
    [
        lambda env: RewardScaleWrapper(env, 0.5),
        lambda env: RewardShiftWrapper(env, 2.0),
        lambda env: RewardClipWrapper(env, -0.5, None),
    ],
)
def test_gymnasium_rebuilds_each_wrapper_from_its_spec(wrap):
    env = wrap(gym.make("Pendulum-v1"))
    again = gym.make(gym.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    assert type(again) is type(env)
    assert rewards_of(again) == rewards_of(env)


def test_rebuilt_stack_keeps_the_order_of_wrappers():
    env = make_env("Pendulum-v1", {"wrappers": {"reward": ALL}})
    assert rewards_of(gym.make(env.spec)) == rewards_of(env)


@pytest.mark.parametrize(
    ("values", "path", "words"),
    [
        ({"scael": 2.0}, ("scael",), "did you mean 'scale'"),
        ({"scale": "2"}, ("scale",), "expected a number, got the text '2'"),
        ({"scale": float("nan")}, ("scale",), "finite"),
        ({"scale": 0}, ("scale",), "must not be 0: every reward would be the same"),
        ({"clip_min": 1.0, "clip_max": 1.0}, ("clip_min",), r"below clip_max \(1\), got 1"),
    ],
)
def test_bad_reward_options_name_their_key(values, path, words):
    with pytest.raises(ConfigError, match=words) as caught:
        RewardTransformConfig(**values)
    assert caught.value.problems[0].path == path


def test_clip_wrapper_refuses_swapped_limits():
    with pytest.raises(ConfigError, match="clip_max"):
        RewardClipWrapper(gym.make("Pendulum-v1"), 1.0, -1.0)


class Rewarding(gym.Env):
    observation_space = action_space = gym.spaces.Discrete(2)

    def __init__(self, reward):
        self.earned = reward

    def reset(self, *, seed=None, options=None):
        return 0, {}

    def step(self, action):
        return 0, self.earned, False, False, {}


@pytest.mark.parametrize("reward", [np.zeros(1), None, "high"])
@pytest.mark.parametrize("shaping", [{}, {"scale": 2.0}])
def test_a_reward_that_is_no_number_is_named(reward, shaping):
    env = apply_reward_wrappers(Rewarding(reward), shaping)
    with pytest.raises(InterfaceError, match=r"the reward .* must be one number"):
        next(roll_out(env, lambda obs: 0, seed=0, steps=1))
