"""`Policy.predict`: the array path against the torch path, bounds, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rl_training.algorithms.bc import BC, BCConfig
from rl_training.algorithms.td3_bc import TD3BC, TD3BCConfig
from rl_training.data.transitions.normalizer import ObservationNormalizer
from rl_training.runtime.policy import Policy
from rl_training.spec import ProblemSpec

CASES = [(3, 1, (64, 64)), (17, 6, (256, 256)), (1, 2, (5,)), (40, 3, (33, 65, 9))]
SPEC = ProblemSpec(4, "continuous", 2, (-2.0, 0.1), (2.0, 0.3))


def make_spec(obs_dim: int, action_dim: int) -> ProblemSpec:
    low = tuple(-1.0 - 0.3 * i for i in range(action_dim))
    return ProblemSpec(obs_dim, "continuous", action_dim, low, (0.7,) * action_dim)


def make_normalizer(obs_dim: int) -> ObservationNormalizer:
    generator = torch.Generator().manual_seed(3)
    mean = 5 * torch.randn(obs_dim, generator=generator)
    return ObservationNormalizer(mean, torch.rand(obs_dim, generator=generator) + 0.5)


def torch_actions(policy: Policy, obs: np.ndarray) -> np.ndarray:
    """What the networks say, by torch alone."""
    batch = torch.from_numpy(np.atleast_2d(obs))
    if policy.normalizer is not None:
        batch = policy.normalizer(batch)
    unit = policy.algorithm.act(batch)
    low, high = torch.tensor(policy.spec.action_low), torch.tensor(policy.spec.action_high)
    actions = ((high + low) / 2 + (high - low) / 2 * unit).numpy()
    return actions if obs.ndim == 2 else actions[0]


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("policy_type", ["deterministic", "gaussian"])
@pytest.mark.parametrize(("obs_dim", "action_dim", "hidden"), CASES)
def test_arrays_act_like_torch(
    obs_dim: int, action_dim: int, hidden: tuple, policy_type: str, normalized: bool
) -> None:
    config = BCConfig(hidden_sizes=hidden, policy_type=policy_type)
    algorithm = BC(make_spec(obs_dim, action_dim), config, seed=obs_dim)
    policy = Policy(algorithm, make_normalizer(obs_dim) if normalized else None)
    assert algorithm.numpy_policy() is not None
    observations = np.random.default_rng(0).normal(0, 5, (64, obs_dim)).astype(np.float32)
    for obs in (observations, observations[:1], *observations[:8]):
        action = policy.predict(obs)
        assert action.shape == (*obs.shape[:-1], action_dim)
        assert action.dtype == np.float32
        np.testing.assert_allclose(action, torch_actions(policy, obs), rtol=1e-6, atol=1e-6)


def test_bounds_hold_at_saturation() -> None:
    algorithm = TD3BC(SPEC, TD3BCConfig(hidden_sizes=(8,)))
    policy = Policy(algorithm)
    observations = np.random.default_rng(0).normal(0, 1e6, (200, 4)).astype(np.float32)
    for actions in (policy.predict(observations), np.stack([*map(policy.predict, observations)])):
        assert (actions >= np.float32(SPEC.action_low)).all()
        assert (actions <= np.float32(SPEC.action_high)).all()
        for i in range(2):
            assert np.float32(SPEC.action_low[i]) in actions[:, i]
            assert np.float32(SPEC.action_high[i]) in actions[:, i]


def test_lists_and_doubles_are_taken() -> None:
    policy = Policy(TD3BC(SPEC), make_normalizer(4))
    expected = policy.predict(np.array([1, 2, 3, 4], np.float32))
    assert np.array_equal(policy.predict([1, 2, 3, 4]), expected)
    assert np.array_equal(policy.predict(np.array([1.0, 2, 3, 4])), expected)
    strided = np.repeat(np.float32([1, 2, 3, 4]), 2)[::2]
    assert np.array_equal(policy.predict(strided), expected)
    np.testing.assert_allclose(policy.predict([[1, 2, 3, 4]])[0], expected, rtol=1e-6, atol=1e-6)
    assert policy.predict(np.zeros((0, 4))).shape == (0, 2)


def test_large_observations_are_numbers_too() -> None:
    huge = np.full(4, 1e30, np.float32)  # the square overflows, the entry does not
    with np.errstate(over="ignore"):
        assert np.isfinite(Policy(TD3BC(SPEC)).predict(huge)).all()


@pytest.mark.parametrize("entry", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("deterministic", [True, False])
def test_no_number_no_action(entry: float, deterministic: bool) -> None:
    policy = Policy(TD3BC(SPEC), make_normalizer(4))
    observations = np.zeros((3, 4), np.float32)
    observations[2, 1] = entry
    for obs in (observations, observations[2]):
        with pytest.raises(ValueError, match="NaN or infinite"):
            policy.predict(obs, deterministic=deterministic)


@pytest.mark.parametrize("shape", [(), (3,), (5,), (2, 3), (4, 1), (1, 1, 4), (0,)])
def test_other_shapes_are_refused(shape: tuple) -> None:
    with pytest.raises(ValueError, match=r"observations of 4 numbers.*got shape"):
        Policy(TD3BC(SPEC)).predict(np.zeros(shape, np.float32))


def test_prediction_follows_an_update() -> None:
    algorithm = BC(SPEC, BCConfig(hidden_sizes=(8,), learning_rate=0.1))
    policy, obs = Policy(algorithm), np.ones(4, np.float32)
    before = policy.predict(obs)
    with torch.no_grad():
        for parameter in algorithm.actor.parameters():
            parameter.add_(0.1)
    algorithm.update_count += 1
    after = policy.predict(obs)
    assert not np.allclose(before, after)
    np.testing.assert_allclose(after, torch_actions(policy, obs), rtol=1e-6, atol=1e-6)


def test_actions_are_the_callers_own() -> None:
    policy, obs = Policy(TD3BC(SPEC), make_normalizer(4)), np.ones(4, np.float32)
    first = policy.predict(obs)
    kept = first.copy()
    policy.predict(-obs)
    assert np.array_equal(first, kept)
    first += 1
    assert np.array_equal(policy.predict(obs), kept)
    assert np.array_equal(obs, np.ones(4))
