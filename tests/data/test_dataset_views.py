"""Views share the rows, and give exactly what was asked for."""

import json

import numpy as np
import pytest
import torch

from rl_training.config import DatasetError
from rl_training.data import TransitionDataset

OBS = torch.tensor([[1.0, 10.0], [3.0, 10.0], [5.0, 10.0]])


def dataset_with(rewards, ends, obs=None, **more):
    """One column everywhere; truncated at `ends`."""
    count = len(rewards)
    path = np.arange(count + 1, dtype=np.float32)[:, None] if obs is None else obs
    truncations = np.isin(np.arange(count), ends)
    fields = {"obs": path[:count], "actions": np.linspace(-2, 2, count)[:, None],
              "rewards": rewards, "next_obs": path[1:] if obs is None else obs,
              "terminations": np.zeros(count), "truncations": truncations}  # fmt: skip
    return TransitionDataset(**{**fields, **more})


def shares_rows(a, b):
    return a._view.packed.rows is b._view.packed.rows


def test_rewards_are_scaled_then_shifted_then_clipped():
    dataset = dataset_with([-4.0, 0.0, 4.0], [2])
    changed = dataset.with_reward_transform(scale=2, shift=1, clip_min=-5, clip_max=5)
    assert changed.rewards.tolist() == [-5, 1, 5]
    assert changed.gather([0, 1, 2]).rewards.tolist() == [-5, 1, 5]
    assert dataset.rewards.tolist() == [-4, 0, 4]
    assert shares_rows(changed, dataset)


def test_reward_transforms_act_in_the_order_of_the_calls():
    dataset = dataset_with([-4.0, 0.0, 4.0], [2])
    changed = dataset.with_reward_transform(clip_max=1).with_reward_transform(scale=10, shift=1)
    assert changed.rewards.tolist() == [-39, 1, 11]


def test_clip_bounds_in_the_wrong_order_are_refused():
    with pytest.raises(DatasetError, match="clip_min 2 must be less than clip_max 1"):
        dataset_with([1.0], [0]).with_reward_transform(clip_min=2, clip_max=1)


def test_a_scale_that_erases_rewards_is_refused():
    with pytest.raises(DatasetError, match="scale must not be 0"):
        dataset_with([1.0], [0]).with_reward_transform(scale=0)


def test_observation_statistics_match_the_reference():
    mean, std = dataset_with([0.0] * 3, [2], obs=OBS).observation_statistics()
    assert mean.tolist() == [3, 10]
    assert std.tolist() == pytest.approx([1.633993, 0.001], abs=1e-6)


def test_observation_statistics_keep_precision_over_many_pieces():
    rng = np.random.default_rng(0)
    obs = (1e4 + rng.standard_normal((300_000, 4))).astype(np.float32)
    dataset = dataset_with(np.zeros(len(obs)), [len(obs) - 1], obs=obs)
    mean, std = dataset.observation_statistics()
    assert np.allclose(mean, obs.astype(float).mean(0), rtol=1e-7)
    assert np.allclose(std, obs.astype(float).std(0) + 1e-3, rtol=1e-6)


def test_normalisation_applies_to_observations_and_next_observations():
    dataset = dataset_with([0.0] * 3, [2], obs=OBS)
    mean, std = dataset.observation_statistics()
    normalised = dataset.with_observation_normalization(mean, std)
    expected = (OBS - mean) / std
    batch = normalised.gather([0, 1, 2])
    for values in (normalised.obs, normalised.next_obs, batch.obs, batch.next_obs):
        assert torch.allclose(values, expected, atol=1e-3)
    assert torch.equal(batch.actions, dataset.actions)
    assert shares_rows(normalised, dataset)


def test_action_scaling_maps_bounds_to_one_and_covers_next_actions():
    dataset = dataset_with([0.0] * 3, [2]).with_next_actions().with_action_scaling(-2, 2)
    batch = dataset.gather([0, 1, 2])
    assert dataset.actions.flatten().tolist() == batch.actions.flatten().tolist() == [-1, 0, 1]
    assert batch.next_actions.flatten().tolist()[:2] == [0, 1]


def test_an_action_dimension_without_width_becomes_zero():
    actions = np.array([[5.0, 0.0], [5.0, 1.0]])
    dataset = dataset_with([0.0] * 2, [1], actions=actions).with_action_scaling([5, 0], [5, 1])
    assert dataset.actions.tolist() == [[0, -1], [0, 1]]


def test_actions_outside_the_bounds_are_clipped_only_if_asked():
    dataset = dataset_with([0.0] * 3, [2])
    assert dataset.with_action_scaling(-1, 1).actions.flatten().tolist() == [-2, 0, 2]
    clipped = dataset.with_action_scaling(-1, 1, clip=True)
    assert clipped.actions.flatten().tolist() == [-1, 0, 1]
    assert clipped.gather([0, 2]).actions[:, 0].tolist() == [-1, 1]


def test_a_clip_keeps_its_place_when_scaling_follows():
    dataset = dataset_with([0.0] * 3, [2]).with_action_clipping(-1, 1).with_action_scaling(-2, 2)
    assert dataset.actions.flatten().tolist() == [-0.5, 0, 0.5]
    twice = dataset_with([0.0] * 3, [2]).with_action_clipping(-1, 1).with_action_clipping(0, 5)
    assert twice.actions.flatten().tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.with_action_scaling([0, 0], 1), "low must have 1 entries"),
        (lambda d: d.with_action_scaling(1, 0), "low must not be greater than high"),
        (lambda d: d.with_observation_normalization(0, 0), "std must be greater than 0"),
        (lambda d: d.with_observation_normalization(np.nan, 1), "mean must be finite, got nan"),
        (lambda d: d.with_observation_normalization(0, [-1]), "std must be greater than 0, got -1 in column 0"),
        (lambda d: d.with_observation_normalization("no", 1), "mean must be a number or 1, got 'no'"),
        (lambda d: d.with_observation_normalization(0, None), "std must be a number or 1, got None"),
        (lambda d: d.with_action_scaling(0, np.inf), "high must be finite, got inf"),
        (lambda d: d.with_action_clipping(1, -1), "low must not be greater than high"),
        (lambda d: d.with_reward_transform(scale=np.nan), "scale must be finite and fit into float32, got nan"),
        (lambda d: d.with_reward_transform(scale=1e39), r"scale must be .*, got 1e\+39"),
        (lambda d: d.with_reward_transform(shift=np.inf), "shift must be finite"),
        (lambda d: d.with_reward_transform(clip_min=np.nan), "clip_min must be finite"),
        (lambda d: d.with_reward_transform(clip_max=-np.inf), "clip_max must be finite"),
        (lambda d: d.with_reward_transform(scale="2"), "scale must be a number, got '2'"),
        (lambda d: d.top_episodes(0), "fraction must be between 0 and 1"),
        (lambda d: d.split(1.0, 0), "fraction must be between 0 and 1"),
        (lambda d: d.split(0.5, 0), "cannot split a dataset of one episode"),
    ],
)  # fmt: skip
def test_bad_arguments_are_named(change, message):
    with pytest.raises(DatasetError, match=message):
        change(dataset_with([1.0, 2.0], [1]))


def test_discrete_actions_cannot_be_scaled(episodes):
    with pytest.raises(DatasetError, match="actions are discrete and cannot be scaled"):
        TransitionDataset(**episodes([3], discrete=True)).with_action_scaling(0, 1)


def test_next_actions_follow_inside_an_episode_and_are_not_valid_at_its_end():
    dataset = dataset_with([0.0] * 5, [1]).with_next_actions()  # the last episode is open
    assert dataset.next_action_valid.tolist() == [1, 0, 1, 1, 0]
    valid = dataset.next_action_valid.bool()
    assert torch.equal(dataset.next_actions[valid], dataset.actions[[1, 3, 4]])
    batch = dataset.gather([4, 2, 1])
    assert batch.next_action_valid.tolist() == [0, 1, 0]
    assert torch.equal(batch.next_actions[1], dataset.actions[3])


def test_rows_that_bootstrap_without_a_next_action_can_be_left_out(episodes):
    dataset = TransitionDataset(**episodes([3, 3], terminal=[True, False]))
    usable = dataset.with_valid_next_actions()
    assert len(usable) == 5
    assert usable.terminations.tolist() == [0, 0, 1, 0, 0]
    assert torch.equal(usable.next_actions[4], dataset.actions[5])
    assert usable.episode_lengths.tolist() == [3, 2]
    assert usable.truncations.tolist() == [0, 0, 0, 0, 1]  # the row before the one left out


def test_next_actions_without_boundaries_are_an_error_that_says_what_helps(episodes):
    fields = {key: value[::7] for key, value in episodes([70]).items()}
    del fields["truncations"]
    with pytest.raises(
        DatasetError, match=r"unknown.*'truncations' or 'next_actions'.*data convert"
    ):
        TransitionDataset(**fields).with_next_actions()


def test_the_best_episodes_are_chosen_by_return():
    dataset = dataset_with([1.0, 1.0, 5.0, 0.0, 3.0], [1, 2, 3, 4])  # returns 2, 5, 0, 3
    assert dataset.episode_returns.tolist() == [2, 5, 0, 3]
    assert dataset.top_episodes(0.5).rewards.tolist() == [5, 3]
    assert dataset.top_episodes(0.51).episode_returns.tolist() == [2, 5, 3]
    assert dataset.top_episodes(0.001).rewards.tolist() == [5]
    assert dataset.top_episodes(1) is dataset
    assert shares_rows(dataset.top_episodes(0.5), dataset)


def test_subsets_of_subsets_keep_their_episodes_and_next_actions():
    dataset = dataset_with([1.0, 1.0, 5.0, 0.0, 3.0, 3.0], [1, 3, 5]).with_next_actions()
    best = dataset.top_episodes(0.6).top_episodes(0.5)
    assert best.rewards.tolist() == [3, 3]
    assert best.episode_starts.tolist() == [0]
    assert torch.equal(best.next_actions[0], best.actions[1])
    assert best.next_action_valid.tolist() == [1, 0]


def test_the_return_range_scale_matches_the_reference():
    dataset = dataset_with([-50.0, 3000.0, 100.0, 50.0], [0, 1, 3])
    assert dataset.return_range_scale() == pytest.approx(0.327869, abs=1e-6)


def test_equal_returns_have_no_range():
    with pytest.raises(DatasetError, match="every episode has the same return 1"):
        dataset_with([1.0, 1.0], [0, 1]).return_range_scale()


def test_unknown_boundaries_split_by_rows(episodes):
    fields = {key: value[::7] for key, value in episodes([70]).items()}
    del fields["truncations"]
    first, second = TransitionDataset(**fields).split(0.3, seed=1)
    assert (len(first), len(second)) == (3, 7)


def test_a_split_depends_on_its_seed_alone(episodes):
    dataset = TransitionDataset(**episodes([3] * 20))
    assert dataset.split(0.5, 1)[0].sha256 == dataset.split(0.5, 1)[0].sha256
    assert dataset.split(0.5, 1)[0].sha256 != dataset.split(0.5, 2)[0].sha256


def test_the_same_generator_seed_draws_the_same_batch(episodes):
    dataset = TransitionDataset(**episodes([30, 30]))
    draws = [dataset.sample(16, generator=torch.Generator().manual_seed(3)) for _ in range(2)]
    assert torch.equal(draws[0].obs, draws[1].obs)


def test_a_description_is_json_and_leaves_the_open_episode_out_of_returns():
    dataset = dataset_with([1.0, 1.0, 5.0, 7.0], [1, 2])
    facts = json.loads(json.dumps(dataset.describe()))
    assert facts["transitions"] == 4
    assert facts["episodes"] == 3
    assert facts["open_episode"] is True
    assert facts["return"] == {"min": 2, "mean": 3.5, "max": 5, "std": 1.5}
    assert facts["episode_length"] == {"min": 1, "mean": 1.5, "max": 2}
    assert facts["truncation_share"] == 0.5
    assert facts["action_min"] == [-2]
    assert facts["boundaries"] == "given"


def test_repr_is_one_line_for_people(episodes):
    dataset = TransitionDataset.from_dict(episodes([300, 900]), "logs.npz")
    assert repr(dataset) == (
        "TransitionDataset(1,200 transitions in 2 episodes, observations (3,), actions (2,), "
        "from logs.npz)"
    )
