"""Playing an environment: whole episodes or a number of steps, and the same again with its seed."""

import gymnasium as gym
import numpy as np
import pytest

from rl_training.envs import roll_out
from rl_training.envs.errors import InterfaceError


class Counting(gym.Env):
    """Counts its steps in the observation; terminates after 3 steps, truncates every other episode."""

    observation_space = gym.spaces.Box(-1, 100, (1,))

    def __init__(self):
        self.action_space = gym.spaces.Discrete(5)
        self.seeds, self.episode = [], -1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.episode += 1
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.time += 1
        over, cut = self.time == 3, self.episode % 2 == 1
        drawn = self.action_space.sample()  # some environments draw their own disturbances there
        obs = np.full(1, self.time, np.float32)
        return obs, float(self.np_random.random()), over and not cut, over and cut, {"drawn": drawn}


def always(action):
    return lambda obs: action


def test_whole_episodes_end_where_the_environment_ends_them():
    played = list(roll_out(Counting(), always(1), seed=0, episodes=2))
    assert [step.terminated for step in played] == [False, False, True, False, False, False]
    assert [step.truncated for step in played] == [False, False, False, False, False, True]
    assert [step.ends_episode for step in played] == [False, False, True] * 2


def test_an_observation_follows_from_the_one_before_except_after_a_reset():
    played = list(roll_out(Counting(), always(1), seed=0, steps=5))
    assert [step.obs.item() for step in played] == [0, 1, 2, 0, 1]
    assert [step.next_obs.item() for step in played] == [1, 2, 3, 1, 2]


@pytest.mark.parametrize(
    ("limits", "length"),
    [({"steps": 5}, 5), ({"episodes": 1, "steps": 2}, 2), ({"episodes": 3}, 9)],
)
def test_the_first_limit_ends_it_without_a_further_reset(limits, length):
    env = Counting()
    assert len(list(roll_out(env, always(1), seed=7, **limits))) == length
    assert env.seeds == [7, *[None] * ((length - 1) // 3)]


def test_the_policy_sees_the_observation_and_its_action_is_carried_out():
    played = list(roll_out(Counting(), lambda obs: int(obs[0]), seed=0, episodes=1))
    assert [step.action for step in played] == [0, 1, 2]


def test_a_seed_repeats_the_rewards_and_the_draws_from_the_action_space():
    def play(seed):
        steps = roll_out(Counting(), always(1), seed=seed, episodes=4)
        return [(step.reward, step.info["drawn"]) for step in steps]

    assert play(1) == play(1) != play(2)


class Overwriting(Counting):
    """Writes every observation into the same array."""

    shared = np.zeros(1, np.float32)

    def reset(self, *, seed=None, options=None):
        self.shared[:] = super().reset(seed=seed)[0]
        return self.shared, {}

    def step(self, action):
        obs, *others = super().step(action)
        self.shared[:] = obs
        return self.shared, *others


def test_observations_stay_what_they_were_when_the_environment_overwrites_them():
    played = list(roll_out(Overwriting(), always(1), seed=0, episodes=2))
    assert [float(step.obs[0]) for step in played] == [0, 1, 2] * 2
    assert [float(step.next_obs[0]) for step in played] == [1, 2, 3] * 2


def test_an_observation_of_another_shape_is_refused_where_it_appears():
    class Growing(Counting):
        def step(self, action):
            return np.zeros(self.time + 1), *super().step(action)[1:]

    played = roll_out(Growing(), always(1), seed=0, episodes=1)
    next(played)
    with pytest.raises(InterfaceError, match=r"step\(\) returned an observation of shape \(2,\)"):
        next(played)
