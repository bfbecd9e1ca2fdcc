"""Samplers: one way to ask a dataset, a replay buffer or a mixture of both for a batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rl_training.data import Batch, ReplayBuffer, TransitionDataset
from rl_training.runtime.experience.mixture import LoggedAndCollected
from rl_training.runtime.experience.protocols import Sampler
from tests.support.data import make_fields


def filled_buffer() -> ReplayBuffer:
    fields = make_fields(seed=1)
    buffer = ReplayBuffer(500, 3, 2)
    for row in range(60):
        buffer.add_batch(**{name: values[row : row + 1] for name, values in fields.items()})
    return buffer


def make_sampler(kind: str) -> Sampler:
    dataset = TransitionDataset.from_dict(make_fields())
    if kind == "dataset":
        return dataset
    if kind == "replay buffer":
        return filled_buffer()
    mixture = LoggedAndCollected(dataset, filled_buffer(), update_size=8)
    mixture.logged_share = 0.5 if kind == "mixture" else None
    return mixture


def draw(sampler: Sampler, seed: int, **options: Any) -> Batch:
    return sampler.sample(24, generator=torch.Generator().manual_seed(seed), **options)


@pytest.mark.parametrize("kind", ["dataset", "replay buffer", "mixture", "pooled mixture"])
def test_a_batch_depends_on_the_generator_alone(kind: str) -> None:
    batch = draw(make_sampler(kind), 0)
    assert len(batch) == 24
    sampler = make_sampler(kind)
    assert not torch.equal(draw(sampler, 1, device="cpu").obs.clone(), batch.obs)
    again = draw(sampler, 0, device="cpu")
    for name in ("obs", "actions", "rewards", "next_obs", "terminations"):
        assert torch.equal(getattr(again, name), getattr(batch, name)), name


def test_a_mixture_is_the_dataset_until_steps_are_collected() -> None:
    dataset = TransitionDataset.from_dict(make_fields()).with_next_actions()
    mixture = LoggedAndCollected(dataset, ReplayBuffer(50, 3, 2), update_size=8)
    mixture.logged_share = 0.25
    batch, expected = draw(mixture, 3), draw(dataset, 3)
    assert torch.equal(batch.obs, expected.obs)
    assert batch.next_actions is not None
    assert mixture.report()["rollout/offline_rows_per_batch"] == 8
