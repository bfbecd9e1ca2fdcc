"""TD3 beside Stable-Baselines3's TD3.

Agrees: the smoothed target with termination and with discounts per row, the sum over critics, the
first critic for the actor, the phase of the delay, and over four updates all networks and targets.
Nothing differs.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.support.parity import harness, sb3

pytestmark = pytest.mark.parity


def pair() -> tuple[Any, Any]:
    from stable_baselines3 import TD3

    theirs = sb3.make_theirs(
        TD3, tau=0.1, policy_delay=2, target_policy_noise=0.4, target_noise_clip=0.5
    )
    with torch.no_grad():  # so that noise takes some actions over the bound
        theirs.actor_target.mu[-2].bias += torch.tensor([1.0, -1.0])
    ours = sb3.make_ours("td3", theirs, tau=0.1, policy_delay=2, policy_noise=0.4, noise_clip=0.5)
    return ours, theirs


@pytest.mark.parametrize("discounts", [False, True], ids=["one step", "several steps"])
def test_four_updates(discounts: bool) -> None:
    ours, theirs = pair()
    for step in range(1, 5):
        batch, before = sb3.make_batch(step, discounts=discounts), sb3.networks(theirs)
        terms, drawn = harness.update(ours, batch)
        noise = drawn["critic"]["smoothing"]
        assert (noise * 0.4).abs().max() > 0.5  # so that the clip is seen
        logged = sb3.train(theirs, batch, noise)
        delayed = ("actor", "target_actor", "target_critic") if step % 2 == 0 else ()
        sb3.assert_moved(before, theirs, "critic", *delayed)
        sb3.assert_agree(ours, theirs)
        assert ("actor_loss" in terms) == ("actor_loss" in logged) == bool(delayed)
        for name in ("critic_loss", *["actor_loss"] * bool(delayed)):
            assert terms[name].item() == pytest.approx(logged[name], rel=1e-5, abs=1e-5)
