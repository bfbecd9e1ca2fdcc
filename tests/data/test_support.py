import numpy as np
import pytest
import torch

from rl_training.data import TransitionDataset
from rl_training.data.support import REFERENCE_ROWS, Support


def correlated_log(obs_dim, seed, *, discrete, episodes=60, length=100):
    """Episodes of an autoregressive process under a noisy policy: rows within one are alike."""
    rng = np.random.default_rng(seed)
    state, states = rng.standard_normal((episodes, obs_dim)), []
    for _ in range(length):
        states.append(state)
        state = 0.95 * state + 0.3 * rng.standard_normal(state.shape)
    obs = np.stack(states, 1).reshape(-1, obs_dim).astype(np.float32)
    if discrete:
        actions = (obs[:, 0] > 0).astype(np.int64)
        actions = np.where(rng.random(len(obs)) < 0.1, 1 - actions, actions)
    else:
        actions = np.tanh(obs[:, :1] + 0.2 * rng.standard_normal((len(obs), 2)))
    cut = np.zeros(len(obs), bool)
    cut[length - 1 :: length] = True
    return TransitionDataset(obs, actions, np.zeros(len(obs)), obs, np.zeros(len(obs)), cut)


@pytest.mark.parametrize("obs_dim", [1, 17])
@pytest.mark.parametrize("discrete", [False, True])
def test_the_behaviour_is_like_the_data_and_a_far_policy_is_not(obs_dim, discrete):
    log, other = (correlated_log(obs_dim, seed, discrete=discrete) for seed in (0, 1))
    support = Support.measure(log, seed=0)
    same = support.unlike(other.obs, other.actions).float().mean()
    assert 0.003 < same < 0.03
    far = torch.full_like(other.actions, 2 if discrete else 4)
    assert support.unlike(other.obs, far).float().mean() > 0.99
    # a log's own pairs are judged by other episodes, not by themselves
    episodes = np.repeat(np.arange(60), 100)
    within = support.unlike(log.obs, log.actions, episodes).float().mean()
    assert 0.003 < within < 0.03


@pytest.mark.parametrize("discrete", [False, True])
def test_distances_are_those_of_plain_differences(discrete):
    log, other = (correlated_log(3, seed, discrete=discrete) for seed in (0, 1))
    support = Support.measure(log, seed=0)
    assert len(support.points) == REFERENCE_ROWS
    obs, actions = other.obs[:200], other.actions[:200]
    points = support.obs_standard.apply(obs)
    if support.action_standard is not None:
        points = torch.cat([points, support.action_standard.apply(actions)], 1)
    expected = (points[:, None] - support.points).square().sum(2).sqrt()
    if support.choices is not None:
        expected = expected.masked_fill(actions[:, None] != support.choices, torch.inf)
    torch.testing.assert_close(support.distances(obs, actions), expected.amin(1))


def test_measuring_again_gives_the_same_and_constant_columns_do_no_harm():
    log = correlated_log(2, 0, discrete=False)
    obs = torch.cat([log.obs, torch.full((len(log), 1), 1e4)], 1)
    actions = torch.cat([log.actions, torch.zeros(len(log), 1)], 1)
    flat = TransitionDataset(
        obs, actions, log.rewards, obs, log.terminations, log.truncations
    )  # fmt: skip
    first, again = Support.measure(flat, seed=3), Support.measure(flat, seed=3)
    assert first.limit == again.limit > 0
    assert torch.equal(first.points, again.points)
    assert bool(first.points.isfinite().all())
    assert not bool(first.unlike(obs[:50], actions[:50]).any())
    actions[:, -1] = 2.0  # the log never moves this one
    assert bool(first.unlike(obs[:50], actions[:50]).all())


def test_rows_of_one_episode_are_compared_with_each_other():
    log = correlated_log(2, 0, discrete=False, episodes=1)
    support = Support.measure(log, seed=0)
    assert 0 < support.limit < 2
