"""Returns to go against the sum written out."""

from __future__ import annotations

import torch
from tests.support.data import make_fields

from rl_training.data import TransitionDataset
from rl_training.data.transitions.returns import returns_to_go


def test_returns_to_go_are_the_discounted_sums_of_each_episode() -> None:
    torch.manual_seed(0)
    lengths = torch.tensor([1, 7, 2, 16, 3])
    ends = lengths.cumsum(0) - 1
    last = ends.repeat_interleave(lengths)
    rewards = torch.randn(len(last))
    found = returns_to_go(rewards, last, 0.9)
    for row in range(len(rewards)):
        tail = rewards[row : last[row] + 1]
        expected = (tail * 0.9 ** torch.arange(len(tail))).sum()
        torch.testing.assert_close(found[row], expected, atol=1e-5, rtol=1e-5)


def test_batches_carry_the_returns_of_the_rewards_they_show() -> None:
    dataset = TransitionDataset.from_dict(make_fields())
    shown = dataset.with_reward_transform(scale=2.0).top_episodes(0.5).with_returns(0.95)
    batch = shown.gather(torch.arange(len(shown)))
    assert batch.returns is not None
    rewards, starts = shown.rewards, shown.episode_starts
    for start, end in zip(starts, [*starts[1:], len(shown)], strict=True):
        total = (rewards[start:end] * 0.95 ** torch.arange(end - start)).sum()
        torch.testing.assert_close(batch.returns[start], total, atol=1e-4, rtol=1e-4)
