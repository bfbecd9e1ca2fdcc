"""DDPG beside Stable-Baselines3's DDPG.

Agrees: the target, both losses, and over three updates all networks and targets. SB3's DDPG is its
TD3 with one critic, no delay and noise that is clipped to nothing. Nothing differs but defaults:
ours are the paper's (400 and 300 units, rates of 1e-4 and 1e-3, τ 0.001, batches of 64).
"""

from __future__ import annotations

import pytest
from tests.support.parity import harness, sb3

pytestmark = pytest.mark.parity


@pytest.mark.parametrize("discounts", [False, True], ids=["one step", "several steps"])
def test_three_updates(discounts: bool) -> None:
    from stable_baselines3 import DDPG

    theirs = sb3.make_theirs(DDPG, tau=0.1)
    ours = sb3.make_ours("ddpg", theirs, tau=0.1)
    for step in range(3):
        batch, before = sb3.make_batch(step, discounts=discounts), sb3.networks(theirs)
        terms, _ = harness.update(ours, batch)
        logged = sb3.train(theirs, batch, harness.normal(harness.ROWS, harness.ACTIONS))
        sb3.assert_moved(before, theirs, "critic", "actor", "target_critic", "target_actor")
        sb3.assert_agree(ours, theirs)
        for name in ("critic_loss", "actor_loss"):
            assert terms[name].item() == pytest.approx(logged[name], rel=1e-5, abs=1e-5)
