"""IQL beside d3rlpy's IQL.

Agrees: value loss (expectile, smallest target critic), critic loss, actor loss (smallest target
critic, capped weights, unsquashed Gaussian), every gradient, and over three updates V and the
actor, which in both libraries sees the V of this very update and the targets of the last one.

Differs on purpose:
- y = r + γ (1-d) V(s') takes the new V, as the authors' code does; d3rlpy steps V and the critics
  together, so its critics see the old V. Given the new V, d3rlpy's critics and targets are ours.
- the standard deviation: d3rlpy learns the logit of its place in [-5, 2] and starts at -1.5, the
  authors and we learn log σ from 0 and clip it. The gradients agree after the chain rule. Updates
  are compared with d3rlpy's σ set to ours before each of them.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.support.parity import harness

from rl_training.algorithms.iql import least_target_q

pytestmark = pytest.mark.parity
CAP = 1.0  # low enough that some weights meet it


def make_impl() -> Any:
    return harness.make_d3rlpy(
        "IQL", gamma=0.9, tau=0.1, expectile=0.8, weight_temp=2.0, max_weight=CAP
    )


def pair() -> tuple[Any, Any]:
    impl = make_impl()
    ours = harness.make_ours(
        "iql", gamma=0.9, tau=0.1, expectile=0.8, beta=2.0, max_advantage_weight=CAP,
        value_learning_rate=harness.RATES["critic"],
    )  # fmt: skip
    harness.copy_weights(impl, ours)
    with torch.no_grad():
        ours.actor.log_std.copy_(torch.tensor([-0.7, 0.4]))
    return ours, impl


def test_losses_and_gradients() -> None:
    ours, impl = pair()
    slope = harness.share_log_std(ours, impl.modules.policy)
    batch = harness.make_batch()
    theirs = harness.as_d3rlpy(batch)
    losses = impl.compute_critic_grad(theirs)
    known = ours.evaluate(least_target_q, batch, {})
    critic = harness.gradients(ours, "critic", batch, {})
    harness.assert_same(critic, {"loss": losses.q_loss.detach()})
    harness.assert_same(critic, harness.ensemble(impl.modules.q_funcs, harness.gradient_of))
    value = harness.gradients(ours, "value", batch, {}, shared=known)
    harness.assert_same(value, {"loss": losses.v_loss.detach()})
    harness.assert_same(value, harness.mlp(impl.modules.value_func, harness.gradient_of))

    loss = impl.compute_actor_grad(theirs).actor_loss
    actor = harness.gradients(ours, "actor", batch, {}, shared=known)
    harness.assert_same(actor, {"loss": loss.detach()})
    harness.assert_same(actor, harness.actor(impl.modules.policy, harness.gradient_of))
    log_std = impl.modules.policy._logstd.grad[0] / slope
    harness.assert_same(actor, {"log_std": log_std})


def test_the_cap_is_met_in_this_batch() -> None:
    ours, _ = pair()
    batch = harness.make_batch()
    known = ours.evaluate(least_target_q, batch, {})
    terms = ours.losses["actor"](ours, batch, {}, ours.config, shared=known)
    assert terms["advantage_weight_max"] == CAP
    assert terms["advantage_weight_mean"] < CAP


def test_three_updates() -> None:
    ours, impl = pair()
    for step in range(3):
        batch, before = harness.make_batch(step), harness.networks(impl)
        harness.share_log_std(ours, impl.modules.policy)
        # d3rlpy's critics would see the old V at s': hand them the new one
        terms, _ = harness.update(ours, batch)
        with torch.no_grad():
            new_value = ours.value(batch.next_obs)
        impl.compute_target = lambda _, value=new_value: value
        losses = impl.inner_update(harness.as_d3rlpy(batch), step)
        harness.assert_moved(before, impl, "critic", "value", "actor", "target_critic")
        harness.assert_networks_agree(ours, impl)
        assert terms["actor_loss"].item() == pytest.approx(losses["actor_loss"], abs=1e-5)
        assert terms["critic_loss"].item() == pytest.approx(losses["q_loss"], abs=1e-5)
        assert terms["value_loss"].item() == pytest.approx(losses["v_loss"], abs=1e-5)


def test_left_alone_only_the_critics_differ() -> None:
    """Unpatched, d3rlpy's critics regress on the old V, everything else is ours."""
    ours, impl = pair()
    harness.share_log_std(ours, impl.modules.policy)
    batch = harness.make_batch()
    with torch.no_grad():
        old = ours.value(batch.next_obs).squeeze(1)
    terms, _ = harness.update(ours, batch)
    losses = impl.inner_update(harness.as_d3rlpy(batch), 0)
    harness.assert_networks_agree(ours, impl, skip=("critic", "target_critic"))
    with torch.no_grad():
        new = ours.value(batch.next_obs).squeeze(1)
    shift = 0.9 * ((1 - batch.terminations) * (new - old)).mean()
    assert shift.abs() > 1e-4
    assert terms["critic_loss"].item() != pytest.approx(losses["q_loss"], abs=1e-5)
    fresh = make_impl()  # the old V and the old critics
    assert losses["q_loss"] == pytest.approx(
        fresh.compute_critic_grad(harness.as_d3rlpy(batch)).q_loss.item(), abs=1e-6
    )
    target_mean = terms["target_q_mean"] - shift
    expected = (batch.rewards + 0.9 * (1 - batch.terminations) * old).mean()
    torch.testing.assert_close(target_mean, expected, rtol=0, atol=1e-5)


def test_log_std_is_another_parameter() -> None:
    """d3rlpy starts at the middle of the range, we at 0; the first Adam step is one rate long."""
    ours = harness.make_ours("iql")
    impl = make_impl()
    output = impl.modules.policy(torch.zeros(1, harness.OBS))
    assert output.logstd[0].tolist() == pytest.approx([-1.5, -1.5])
    assert ours.actor(torch.zeros(1, harness.OBS))[1].tolist() == [0.0, 0.0]

    ours, impl = pair()
    policy = impl.modules.policy
    slope = harness.share_log_std(ours, policy)
    start, log_std = policy._logstd.detach().clone(), ours.actor.log_std.detach().clone()
    batch = harness.make_batch()
    harness.update(ours, batch)
    impl.inner_update(harness.as_d3rlpy(batch), 0)
    moved = ours.actor.log_std.detach() - log_std
    assert moved.abs().tolist() == pytest.approx([harness.RATES["actor"]] * 2, abs=1e-6)
    torch.testing.assert_close((policy._logstd.detach() - start)[0], moved, rtol=0, atol=1e-5)
    theirs = policy(batch.obs).logstd[0].detach() - log_std  # the chain rule again
    torch.testing.assert_close(theirs, slope * moved, rtol=0, atol=1e-4)
