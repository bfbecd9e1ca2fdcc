"""One normalisation: gathered rows, collected rows and the policy agree to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rl_training.algorithms.bc import BC, BCConfig
from rl_training.data import ObservationNormalizer, ReplayBuffer, TransitionDataset
from rl_training.data.transitions.batch_memory import BatchMemory
from rl_training.envs.spaces import ActionScaler
from rl_training.runtime.experience.mixture import LoggedAndCollected
from rl_training.runtime.policy import Policy
from rl_training.runtime.prepare import prepare
from rl_training.spec import ProblemSpec

ROWS = 500
RANGES = [(1000.0, 1000.01), (273.14, 273.16), (-500_001.0, -499_998.0), (-2.0, 2.0), (0.0, 0.5)]
LOW, HIGH = zip(*RANGES, strict=True)
SPEC = ProblemSpec(6, "continuous", len(RANGES), LOW, HIGH)


def fields_far_from_zero() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    unit = rng.uniform(-1, 1, (ROWS + 1, 6))
    obs = np.float32(
        unit * [0, 1, 0.01, 0, 1, 1e-3] + [1e5, 1e6, 273, 101_325, 0, 0]
    )  # constant, 1e6 ± 1, 273 ± 0.01, constant, and two of ordinary size
    low, high = np.float32(LOW), np.float32(HIGH)
    actions = np.clip(np.float32(rng.uniform(low, high, (ROWS, len(low)))), low, high)
    actions[0], actions[1] = low, high
    return {
        "obs": obs[:-1],
        "actions": actions,
        "rewards": np.zeros(ROWS, np.float32),
        "next_obs": obs[1:],
        "terminations": np.zeros(ROWS, np.bool_),
        "truncations": np.arange(ROWS) % 50 == 49,
    }


@pytest.fixture
def logged() -> TransitionDataset:
    return TransitionDataset.from_dict(fields_far_from_zero())


@pytest.fixture
def normalizer(logged: TransitionDataset) -> ObservationNormalizer:
    return ObservationNormalizer(*logged.observation_statistics())


def test_gathered_observations_are_those_of_the_normaliser_to_the_bit(
    logged: TransitionDataset, normalizer: ObservationNormalizer
) -> None:
    view = logged.with_observation_normalization(normalizer.mean, normalizer.std)
    everything = view.gather(torch.arange(ROWS))
    drawn = view.sample(ROWS, generator=torch.Generator().manual_seed(0), memory=BatchMemory())
    stored = logged.sample(ROWS, generator=torch.Generator().manual_seed(0), memory=BatchMemory())
    for raw, got in (
        (logged.obs, view.obs),
        (logged.obs, everything.obs),
        (logged.next_obs, view.next_obs),
        (logged.next_obs, everything.next_obs),
        (stored.obs, drawn.obs),
    ):
        assert torch.equal(got, normalizer(raw))
        assert np.array_equal(got.numpy(), normalizer.as_numpy()(raw.numpy()))


def test_columns_far_from_zero_keep_what_float32_holds_of_them(
    logged: TransitionDataset, normalizer: ObservationNormalizer
) -> None:
    view = logged.with_observation_normalization(normalizer.mean, normalizer.std)
    assert not view.obs[:, [0, 3]].any()  # constant
    exact = logged.obs.double()
    spread = exact.std(0, correction=0)
    small = (spread < 1e-2) & (spread > 1e-6 * exact.mean(0).abs())  # not constant
    exact = (exact - exact.mean(0)) / (spread + torch.where(small, 0.1 * spread, 1e-3))
    # the mean itself is rounded: by 0.03 of a deviation at 1e6 ± 1, the same in every row
    assert (view.obs - exact).std(0).max() < 1e-5
    assert (view.obs - exact).abs().max() < 0.06


def test_normalising_twice_is_one_normaliser_after_the_other(
    logged: TransitionDataset, normalizer: ObservationNormalizer
) -> None:
    once = logged.with_observation_normalization(normalizer.mean, normalizer.std)
    second = ObservationNormalizer(*once.observation_statistics())
    twice = once.with_action_scaling(LOW, HIGH).with_observation_normalization(
        second.mean, second.std
    )
    assert torch.equal(twice.gather([3, 4]).obs, second(normalizer(logged.obs[3:5])))
    assert torch.equal(twice.obs, second(normalizer(logged.obs)))


def test_logged_and_collected_rows_of_one_batch_are_normalised_alike(
    logged: TransitionDataset, normalizer: ObservationNormalizer
) -> None:
    fields = fields_far_from_zero()
    unit = logged.with_action_scaling(LOW, HIGH)
    buffer = ReplayBuffer(ROWS, 6, len(RANGES))
    for row in range(ROWS):
        step = {name: values[row : row + 1] for name, values in fields.items()}
        buffer.add_batch(**{**step, "actions": ActionScaler(SPEC).to_unit(step["actions"])})
    view = unit.with_observation_normalization(normalizer.mean, normalizer.std)
    mixture = LoggedAndCollected(view, buffer, update_size=200, normalizer=normalizer)
    mixture.logged_share = 0.5
    batch = mixture.sample(200, generator=torch.Generator().manual_seed(0))
    expected = {
        tuple(row) for row in torch.cat([view.obs, view.actions, view.next_obs], 1).tolist()
    }
    got = {tuple(row) for row in torch.cat([batch.obs, batch.actions, batch.next_obs], 1).tolist()}
    assert got <= expected


def test_narrow_action_ranges_come_back_to_the_bit(logged: TransitionDataset) -> None:
    scaler = ActionScaler(SPEC)
    learned = logged.with_action_scaling(LOW, HIGH)
    assert learned.actions.abs().max() <= 1
    for unit in (learned.actions, learned.gather(torch.arange(ROWS)).actions):
        assert np.array_equal(unit.numpy(), scaler.to_unit(logged.actions.numpy()))
    narrow = slice(0, 3)  # wide ranges round by one unit in the last place, as any product does
    back = scaler.to_env(learned.actions.numpy())
    assert np.array_equal(back[:, narrow], logged.actions.numpy()[:, narrow])
    assert np.array_equal(scaler.to_env(-np.ones(len(LOW))), np.float32(LOW))
    assert np.array_equal(scaler.to_env(np.ones(len(LOW))), np.float32(HIGH))


def test_the_policy_on_tensors_acts_as_on_arrays_in_narrow_ranges(
    logged: TransitionDataset, normalizer: ObservationNormalizer
) -> None:
    algorithm = BC(SPEC, BCConfig(hidden_sizes=(8,)), seed=0)
    policy = Policy(algorithm, normalizer)
    unit = torch.linspace(-1.0, 1.0, 41)[:, None].expand(41, len(LOW))
    algorithm.act = lambda *_, **__: unit  # type: ignore[assignment, method-assign]
    on_tensors = policy(logged.obs[:41]).numpy()
    assert np.array_equal(on_tensors, ActionScaler(SPEC).to_env(unit.numpy()))


def test_bounds_that_float32_rounds_take_the_logs_own_extremes(small_config: Any) -> None:
    fields = fields_far_from_zero()
    fields["actions"] = fields["actions"][:, :2]
    options = {"action_low": [1000.0, 273.14], "action_high": [1000.01, 273.16]}
    data = prepare(small_config(algo_kwargs=options), TransitionDataset.from_dict(fields))
    assert data.dataset is not None
    assert data.dataset.learning.actions.abs().max() <= 1
