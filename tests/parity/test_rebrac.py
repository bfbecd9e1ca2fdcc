"""ReBRAC beside d3rlpy's ReBRAC.

Agrees: target with smoothing, the penalty on the smoothed action against the data's next action
(summed over dimensions, discounted and masked), critic loss, actor loss (smallest critic,
detached scale, penalty summed over dimensions), every gradient, and over four updates all
networks and targets. The critics have LayerNorm after the activation.

Differs on purpose:
- LayerNorm's epsilon is Flax's 1e-6, as in the authors' code; d3rlpy has PyTorch's 1e-5, and no
  LayerNorm at all unless its encoder factory is asked for it. The tests set 1e-6 in d3rlpy.
- the phase of the delay, as in TD3+BC: the second update is the first that moves the actor.
- `actor_q_weight` is ours; at 1 it is the paper's loss.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.support.parity import harness
from torch import nn

pytestmark = pytest.mark.parity


def pair(epsilon: float = 1e-6) -> tuple[Any, Any]:
    ours = harness.make_ours(
        "rebrac", gamma=0.9, tau=0.1, actor_bc_weight=0.4, critic_bc_weight=0.3,
        policy_noise=0.4, noise_clip=0.5,
    )  # fmt: skip
    impl = harness.make_d3rlpy(
        "ReBRAC", gamma=0.9, tau=0.1, actor_beta=0.4, critic_beta=0.3, layer_norm=True,
        target_smoothing_sigma=0.4, target_smoothing_clip=0.5, update_actor_interval=2,
    )  # fmt: skip
    for networks in (impl.modules.q_funcs, impl.modules.targ_q_funcs):
        norms = [m for m in networks.modules() if isinstance(m, nn.LayerNorm)]
        assert len(norms) == 2 * len(harness.HIDDEN)
        for norm in norms:
            assert norm.eps == 1e-5
            norm.eps = epsilon
    harness.copy_weights(impl, ours)
    return ours, impl


def test_critic_loss_and_gradient() -> None:
    ours, impl = pair()
    batch, noise = harness.make_batch(), harness.normal(harness.ROWS, harness.ACTIONS)
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


def test_epsilon_is_the_only_difference_of_the_normalisation() -> None:
    """With 1e-5 d3rlpy's values leave ours by a little, in proportion to 1 / variance."""
    batch = harness.make_batch()
    values = {}
    for epsilon in (1e-6, 1e-5):
        ours, impl = pair(epsilon)
        with torch.no_grad():
            values[epsilon] = torch.stack(
                [q(batch.obs, batch.actions).q_value.squeeze(1) for q in impl.modules.q_funcs]
            )
            mine = ours.critic(batch.obs, batch.actions)
    torch.testing.assert_close(mine, values[1e-6], rtol=0, atol=1e-6)
    assert 1e-6 < (mine - values[1e-5]).abs().max() < 1e-2
