"""What holds for any data, found by hypothesis."""

import tempfile
from pathlib import Path

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_training.data import TransitionDataset, load_transition_dataset

KINDS = {"a.npz": "npz", "a.pt": "pt", "a.hdf5": "hdf5"}


@st.composite
def datasets(draw, min_episodes=1):
    """Rows that carry their own number, so that mixed-up fields are seen."""
    lengths = draw(st.lists(st.integers(1, 6), min_size=min_episodes, max_size=6))
    count = sum(lengths)
    ends = np.cumsum(lengths) - 1
    terminal = np.array(draw(st.lists(st.booleans(), min_size=len(ends), max_size=len(ends))))
    terminations = np.zeros(count, bool)
    terminations[ends[terminal]] = True
    truncations = np.zeros(count, bool)
    truncations[ends[~terminal]] = True
    truncations[-1] &= draw(st.booleans())  # the last episode may be open
    number = np.arange(count, dtype=np.float32)
    actions = np.arange(count) if draw(st.booleans()) else number[:, None] + 0.5
    scale = draw(st.sampled_from([1.0, 0.1]))
    dataset = TransitionDataset(
        np.stack([number, -number], 1), actions, number * scale, np.stack([number + 1, -number], 1),
        terminations, truncations,
    )  # fmt: skip
    return dataset.with_next_actions() if draw(st.booleans()) else dataset


def same(a, b):
    return (a is None and b is None) or torch.equal(a, b)


def assert_equal(a, b):
    for name in ("obs", "actions", "rewards", "next_obs", "terminations", "truncations",
                 "next_actions", "next_action_valid"):  # fmt: skip
        assert same(getattr(a, name), getattr(b, name)), name
    assert (a.boundaries, a.discrete, a.num_actions) == (b.boundaries, b.discrete, b.num_actions)
    assert a.episode_lengths.tolist() == b.episode_lengths.tolist()


@settings(deadline=None, max_examples=60)
@given(
    dataset=datasets(),
    name=st.sampled_from(sorted(KINDS)),
    scale=st.sampled_from([1.0, 3.0]),
    left_out=st.booleans(),
)
def test_a_saved_dataset_loads_equal(dataset, name, scale, left_out):
    changed = dataset.with_reward_transform(scale=scale)
    if left_out and (dataset.with_next_actions().next_action_valid + dataset.terminations).any():
        changed = changed.with_valid_next_actions()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / name
        changed.save(path)
        assert_equal(load_transition_dataset(KINDS[name], dataset_path=path), changed)
        assert [entry.name for entry in path.parent.iterdir()] == [name]


@settings(deadline=None, max_examples=50)
@given(dataset=datasets(min_episodes=2), fraction=st.floats(0.05, 0.95), seed=st.integers(0, 9))
def test_a_split_shares_out_whole_episodes(dataset, fraction, seed):
    first, second = dataset.split(fraction, seed)
    rows = torch.cat([first.obs[:, 0], second.obs[:, 0]])
    assert sorted(rows.tolist()) == dataset.obs[:, 0].tolist()
    whole = [tuple(part) for part in np.split(np.arange(len(dataset)), dataset.episode_starts[1:])]
    for part in (first, second):
        numbers = part.obs[:, 0].int().numpy()
        assert all(tuple(e) in whole for e in np.split(numbers, part.episode_starts[1:]))


@settings(deadline=None, max_examples=50)
@given(
    dataset=datasets(),
    steps=st.lists(
        st.tuples(st.floats(-3, 3).filter(bool), st.floats(-3, 3), st.none() | st.floats(-5, 0)),
        max_size=3,
    ),
)
def test_reward_transforms_compose_like_direct_computation(dataset, steps):
    expected = dataset.rewards.double()
    for scale, shift, low in steps:
        dataset = dataset.with_reward_transform(scale, shift, clip_min=low)
        expected = expected * scale + shift
        expected = expected if low is None else expected.clamp(min=low)
    assert torch.allclose(dataset.rewards.double(), expected, rtol=1e-4, atol=1e-4)
    assert torch.equal(dataset.gather(range(len(dataset))).rewards, dataset.rewards)


@settings(deadline=None, max_examples=50)
@given(dataset=datasets())
def test_next_actions_never_cross_an_episode(dataset):
    dataset = dataset.with_next_actions()
    ends = dataset.episode_starts + dataset.episode_lengths - 1
    valid = dataset.next_action_valid.numpy()
    assert np.flatnonzero(valid == 0).tolist() == ends.tolist()
    inside = np.flatnonzero(valid)
    assert same(dataset.next_actions[inside], dataset.actions[inside + 1])


@settings(deadline=None, max_examples=50)
@given(dataset=datasets(), fraction=st.floats(0.1, 1), seed=st.integers(0, 99))
def test_sampled_rows_come_from_the_data_with_matching_fields(dataset, fraction, seed):
    dataset = dataset.top_episodes(fraction)
    allowed = set(dataset.obs[:, 0].tolist())
    batch = dataset.sample(32, generator=torch.Generator().manual_seed(seed))
    number = batch.obs[:, 0]
    assert set(number.tolist()) <= allowed
    assert same(batch.next_obs[:, 0], number + 1)
    actions = batch.actions if dataset.discrete else batch.actions[:, 0] - 0.5
    assert same(actions.float(), number)
    if batch.next_actions is not None:
        following = batch.next_actions if dataset.discrete else batch.next_actions[:, 0] - 0.5
        assert same(following.float(), number + batch.next_action_valid)


@settings(deadline=None, max_examples=50)
@given(dataset=datasets())
def test_fields_and_gathered_batches_agree_under_all_transforms(dataset):
    dataset = dataset.with_observation_normalization([3, 1], [2, 0.5])
    if not dataset.discrete:
        dataset = dataset.with_action_scaling(0, 10, clip=True)
    dataset = dataset.with_next_actions().top_episodes(0.5)
    dataset = dataset.with_reward_transform(2, 1, clip_max=5)
    batch = dataset.gather(range(len(dataset)))
    for name in ("obs", "actions", "rewards", "next_obs", "terminations", "next_actions",
                 "next_action_valid"):  # fmt: skip
        assert same(getattr(batch, name), getattr(dataset, name)), name
