"""Memory that batches share in turns is never written to while someone looks at it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from rl_training.data import Batch, ReplayBuffer

SIZE = 16


def buffer_of(rows: int, *, discrete: bool) -> ReplayBuffer:
    buffer = ReplayBuffer(rows, 3, 1, discrete=discrete)
    draws = torch.randn(rows, 3).numpy()
    for row in draws:
        action = [[1.0]] if row[0] > 0 else [[0.0]]
        buffer.add_batch(row[None], action, row[:1], -row[None], [row[1] > 0], [False])
    return buffer


@pytest.mark.parametrize("discrete", [False, True])
def test_a_batch_used_again_is_the_one_that_would_have_been_made(discrete: bool) -> None:
    buffer = buffer_of(50, discrete=discrete)
    one, other = torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)
    places = set()
    for _ in range(5):
        batch = buffer.sample(SIZE, generator=one)
        made = buffer.gather(buffer.draw(SIZE, other))
        for name in ("obs", "actions", "rewards", "next_obs", "terminations", "obs_actions"):
            assert getattr(batch, name).equal(getattr(made, name)), name
            assert getattr(batch, name).dtype == getattr(made, name).dtype, name
        places.add(batch.obs.data_ptr())
    assert len(places) == 2  # while one is looked at the next is drawn


def _loss(batch: Batch) -> Any:
    return torch.nn.functional.mse_loss(torch.zeros(SIZE, 3, requires_grad=True), batch.next_obs)


@pytest.mark.parametrize(
    "hold",
    [
        lambda batch: batch,
        lambda batch: batch.obs,
        lambda batch: batch.actions[2:],
        lambda batch: batch.rewards.numpy(),
        lambda batch: batch.parts(2)[1],
        lambda batch: batch.obs_actions,
        _loss,
    ],
    ids=["batch", "tensor", "view", "array", "part", "packed view", "graph"],
)
@pytest.mark.parametrize("discrete", [False, True])
def test_what_is_held_is_left_alone(hold: Callable[[Batch], Any], discrete: bool) -> None:
    buffer = buffer_of(50, discrete=discrete)
    generator = torch.Generator().manual_seed(1)
    held, places = [], set()
    for _ in range(4):
        batch = buffer.sample(SIZE, generator=generator)
        places.add(batch.obs.data_ptr())
        held.append(hold(batch))
        del batch
    assert len(places) == 4
