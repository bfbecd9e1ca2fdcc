"""TD3+BC beside d3rlpy's TD3PlusBC.

Agrees: target with smoothing and termination, critic loss (sum over critics of batch means),
actor loss (first critic, detached scale, mean over dimensions), every gradient, and over four
updates all networks and targets (both move only when the actor does; the actor sees the updated
critic).

Differs on purpose:
- the phase of the delay. d3rlpy counts from 0 and moves the actor in the first update; the
  authors' code and we move it in the second.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.parity import harness

pytestmark = pytest.mark.parity


def pair() -> tuple[Any, Any]:
    ours = harness.make_ours(
        "td3_bc", gamma=0.9, tau=0.1, bc_alpha=1.7, policy_noise=0.4, noise_clip=0.5
    )
    impl = harness.make_d3rlpy(
        "TD3PlusBC", gamma=0.9, tau=0.1, alpha=1.7, target_smoothing_sigma=0.4,
        target_smoothing_clip=0.5, update_actor_interval=2,
    )  # fmt: skip
    harness.copy_weights(impl, ours)
    return ours, impl


def test_critic_loss_and_gradient() -> None:
    ours, impl = pair()
    batch = harness.make_batch()
    noise = harness.normal(harness.ROWS, harness.ACTIONS)
    assert (noise * 0.4).abs().max() > 0.5  # so that the clip is seen
    with harness.draws(noise):
        loss = impl.compute_critic_grad(harness.as_d3rlpy(batch)).critic_loss
    mine = harness.gradients(ours, "critic", batch, {"smoothing": noise})
    harness.assert_same(mine, {"loss": loss.detach()})
    harness.assert_same(mine, harness.ensemble(impl.modules.q_funcs, harness.gradient_of))


def test_actor_loss_and_gradient() -> None:
    ours, impl = pair()
    batch = harness.make_batch()
    loss = impl.compute_actor_grad(harness.as_d3rlpy(batch)).actor_loss
    mine = harness.gradients(ours, "actor", batch, {})
    harness.assert_same(mine, {"loss": loss.detach()})
    harness.assert_same(mine, harness.actor(impl.modules.policy, harness.gradient_of))


def test_four_updates() -> None:
    ours, impl = pair()
    for step in range(1, 5):
        batch, before = harness.make_batch(step), harness.networks(impl)
        terms, drawn = harness.update(ours, batch)
        with harness.draws(drawn["critic"]["smoothing"]):
            losses = impl.inner_update(harness.as_d3rlpy(batch), step)
        delayed = ("actor", "target_actor", "target_critic") if step % 2 == 0 else ()
        harness.assert_moved(before, impl, "critic", *delayed)
        harness.assert_networks_agree(ours, impl)
        assert set(losses) <= set(terms)
        for name, value in losses.items():
            assert terms[name].item() == pytest.approx(value, rel=1e-5, abs=1e-5)


def test_d3rlpy_moves_the_actor_one_update_earlier() -> None:
    ours, impl = pair()
    batch, before = harness.make_batch(), harness.networks(impl)
    _, drawn = harness.update(ours, batch)
    with harness.draws(drawn["critic"]["smoothing"]):
        impl.inner_update(harness.as_d3rlpy(batch), 0)  # d3rlpy numbers its first update 0
    harness.assert_moved(before, impl, "critic", "actor", "target_actor", "target_critic")
    harness.assert_same(ours.critic.state_dict(), harness.networks(impl)["critic"])
    for name in ("actor", "target_actor", "target_critic"):
        harness.assert_same(getattr(ours, name).state_dict(), before[name], name)
