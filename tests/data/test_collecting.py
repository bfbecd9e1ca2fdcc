"""Datasets made by playing an environment."""

import gymnasium as gym
import numpy as np
import pytest

from rl_training.config import DatasetError, EnvError
from rl_training.data.collecting import collect, collect_random


def test_random_collection_repeats_with_its_seed():
    first, again, other = (collect_random(gym.make("Pendulum-v1"), 300, seed) for seed in (1, 1, 2))
    assert first.sha256 == again.sha256 != other.sha256


def test_random_collection_covers_the_action_bounds():
    actions = collect_random(gym.make("Pendulum-v1"), 500, 0).actions
    assert float(actions.min()) < -1.9
    assert float(actions.max()) > 1.9


def test_last_partial_episode_is_kept_and_truncated():
    dataset = collect_random(gym.make("Pendulum-v1"), 250, 0)
    assert dataset.truncations.nonzero().squeeze(1).tolist() == [199, 249]
    assert not dataset.terminations.any()
    assert dataset.episode_lengths.tolist() == [200, 50]


def test_terminations_stay_terminations_with_their_final_observation():
    dataset = collect_random(gym.make("CartPole-v1"), 500, 0)
    ends = dataset.terminations.nonzero().squeeze(1)
    assert dataset.discrete
    assert len(ends) > 5
    # CartPole terminates outside 2.4 or 0.2095 rad: only the real final observation is there.
    final = dataset.next_obs[ends].abs()
    assert bool(((final[:, 0] > 2.4) | (final[:, 2] > 0.2095)).all())
    assert int(dataset.truncations.sum()) == int(not dataset.terminations[-1])


def test_collect_uses_the_given_policy():
    dataset = collect(gym.make("Pendulum-v1"), lambda obs: obs[1:2] * 0.5, 50, seed=3)
    np.testing.assert_allclose(dataset.actions, dataset.obs[:, 1:2] * 0.5)


def test_choices_are_numbered_from_zero():
    space = gym.spaces.Discrete(2, start=-1)
    env = gym.wrappers.TransformAction(gym.make("CartPole-v1"), lambda a: a + 1, space)
    dataset = collect_random(env, 100, 0)
    assert sorted(set(dataset.actions.tolist())) == [0, 1]


def test_empty_collection_is_refused():
    with pytest.raises(DatasetError, match="at least 1 transition, got size 0"):
        collect_random(gym.make("Pendulum-v1"), 0, 0)


def test_collection_needs_flat_spaces():
    with pytest.raises(EnvError, match="flat observations"):
        collect_random(gym.make("FrozenLake-v1"), 10, 0)
