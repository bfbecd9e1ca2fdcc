import dataclasses

import torch

from rl_training.data import TransitionDataset
from rl_training.data.transitions.batch_memory import BatchMemory


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


def test_a_batch_is_laid_out_alike_on_other_tensors(episodes):
    dataset = TransitionDataset(**episodes([5, 5])).with_next_actions()
    batch = dataset.sample(7)
    assert list(batch.tensors) == ["rows"]
    moved = batch.with_tensors({name: value.clone() for name, value in batch.tensors.items()})
    for name in ("obs", "actions", "rewards", "next_obs", "terminations", "next_actions"):
        assert torch.equal(getattr(moved, name), getattr(batch, name))
        assert getattr(moved, name).data_ptr() != getattr(batch, name).data_ptr()
    moved.tensors["rows"].zero_()
    assert not moved.next_actions.any()
    assert batch.with_tensors(batch.tensors) is batch


def test_fields_apart_from_the_rows_are_tensors_of_their_own(episodes):
    batch = TransitionDataset(**episodes([5, 5])).sample(7)
    changed = dataclasses.replace(batch, actions=torch.zeros(7, 2), weights=torch.ones(7))
    assert set(changed.tensors) == {
        "obs", "actions", "rewards", "next_obs", "terminations", "weights",
    }  # fmt: skip
    twice = changed.with_tensors({name: 2 * value for name, value in changed.tensors.items()})
    assert torch.equal(twice.weights, 2 * torch.ones(7))
    assert torch.equal(twice.obs, 2 * batch.obs)


def test_parts_of_a_batch_are_views_of_its_rows(episodes):
    batch = TransitionDataset(**episodes([5, 5])).sample(6)
    first, second = batch.parts(2)
    assert torch.equal(torch.cat([first.next_obs, second.next_obs]), batch.next_obs)
    assert first.obs.data_ptr() == batch.obs.data_ptr()


def test_memory_is_used_again_for_the_next_batch(episodes):
    dataset, memory = TransitionDataset(**episodes([5, 5])), BatchMemory()
    generator, alone = torch.Generator().manual_seed(3), torch.Generator().manual_seed(3)
    addresses = set()
    for size in (4, 4, 4):
        batch = dataset.sample(size, generator=generator, memory=memory)
        assert torch.equal(batch.obs, dataset.sample(size, generator=alone).obs)
        addresses.add(batch.obs.data_ptr())
    assert len(addresses) == 1
    assert len(dataset.sample(3, generator=generator, memory=memory)) == 3


def test_repr_shows_sizes_and_no_numbers(episodes):
    dataset = TransitionDataset(**episodes([5])).with_next_actions()
    text = repr(dataset.sample(4, generator=None))
    assert text == "Batch(4 transitions, obs (3,), actions (2,), with next actions)"
