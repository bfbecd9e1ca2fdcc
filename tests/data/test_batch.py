import dataclasses

import torch

from rl_training.data import Batch, TransitionDataset


def test_fields_of_a_sampled_batch_have_the_documented_shapes(episodes):
    batch = TransitionDataset(**episodes([5, 5])).sample(7, generator=None)
    assert len(batch) == 7
    assert batch.obs.shape == batch.next_obs.shape == (7, 3)
    assert batch.actions.shape == (7, 2)
    assert batch.rewards.shape == batch.terminations.shape == (7,)
    assert batch.next_actions is None
    assert batch.discounts is batch.weights is batch.indices is None


def test_discrete_actions_are_int64_and_flat(episodes):
    dataset = TransitionDataset(**episodes([5, 5], discrete=True)).with_next_actions()
    batch = dataset.sample(7, generator=None)
    assert batch.actions.dtype == batch.next_actions.dtype == torch.int64
    assert batch.actions.shape == batch.next_actions.shape == (7,)


def test_obs_actions_is_a_view_of_the_gathered_rows(episodes):
    batch = TransitionDataset(**episodes([5, 5])).sample(7, generator=None)
    assert batch.obs_actions.data_ptr() == batch.obs.data_ptr()
    assert torch.equal(batch.obs_actions, torch.cat([batch.obs, batch.actions], 1))


def test_obs_actions_of_a_changed_batch_follows_the_change(episodes):
    batch = TransitionDataset(**episodes([5, 5])).sample(7, generator=None)
    changed = dataclasses.replace(batch, actions=torch.zeros(7, 2))
    assert torch.equal(changed.obs_actions, torch.cat([batch.obs, torch.zeros(7, 2)], 1))


def test_a_batch_can_be_built_from_separate_tensors():
    batch = Batch(torch.ones(2, 3), torch.tensor([1, 0]), torch.ones(2), torch.ones(2, 3),
                  torch.zeros(2))  # fmt: skip
    assert batch.obs_actions.tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]


def test_repr_shows_sizes_and_no_numbers(episodes):
    dataset = TransitionDataset(**episodes([5])).with_next_actions()
    text = repr(dataset.sample(4, generator=None))
    assert text == "Batch(4 transitions, obs (3,), actions (2,), with next actions)"
