"""AWAC beside d3rlpy's AWAC.

Agrees: critic loss for a given target, softmax weights (smallest online critic, one draw),
actor loss up to a factor, every gradient up to that factor, and over three updates all networks
and targets, d3rlpy being given our target.

Differs on purpose:
- the target. d3rlpy inherits SAC's: a' is squashed, tanh(μ + σ ε), and log π(a'|s') is subtracted
  with temperature 1 (its dummy log temperature is 0). The paper, CORL and we draw a' from the
  policy itself, clip(tanh(μ) + σ ε), and subtract nothing.
- d3rlpy sums the weighted log-likelihoods over the batch, we average: its actor loss is `batch
  size` times ours. Adam does not see the factor.
- d3rlpy has softmax weights only; `exp`, our default, is CORL's.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from tests.support.parity import harness

pytestmark = pytest.mark.parity


def pair() -> tuple[Any, Any]:
    impl = harness.make_d3rlpy("AWAC", gamma=0.9, tau=0.1, lam=0.5, n_action_samples=1)
    ours = harness.make_ours(
        "awac", gamma=0.9, tau=0.1, awac_lambda=0.5, weight_normalization="softmax"
    )
    harness.copy_weights(impl, ours)
    with torch.no_grad():
        ours.actor.log_std.copy_(torch.tensor([-0.7, -1.4]))
    return ours, impl


def draw() -> dict[str, torch.Tensor]:
    rows, width = harness.ROWS, harness.ACTIONS
    return {
        "next": harness.normal(rows, width),
        "policy": harness.normal(rows, width, seed=2),
    }


@torch.no_grad()
def next_values(policy: Any, critic: Any, obs: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """What our target holds of s', as d3rlpy shapes it."""
    return critic(torch.cat([obs, policy.draw(obs, noise)], -1)).amin(0).unsqueeze(1)


def test_critic_loss_and_gradient_for_a_given_target() -> None:
    ours, impl = pair()
    batch, noise = harness.make_batch(), draw()
    impl.compute_target = lambda batch: next_values(
        ours.actor, ours.target_critic, batch.next_observations, noise["next"]
    )
    loss = impl.compute_critic_grad(harness.as_d3rlpy(batch)).critic_loss
    mine = harness.gradients(ours, "critic", batch, noise)
    harness.assert_same(mine, {"loss": loss.detach()})
    harness.assert_same(mine, harness.ensemble(impl.modules.q_funcs, harness.gradient_of))


def test_the_target_of_d3rlpy_is_that_of_sac() -> None:
    ours, impl = pair()
    harness.share_log_std(ours, impl.modules.policy)
    batch, noise = harness.make_batch(), draw()
    with harness.draws(noise["next"]):
        theirs = impl.compute_target(harness.as_d3rlpy(batch))
    with torch.no_grad():
        mean = torch.atanh(ours.actor.mode(batch.next_obs))  # before the tanh
        std = ours.actor(batch.next_obs)[1].exp()
        normal = torch.distributions.Normal(mean, std)
        raw = mean + std * noise["next"]
        squashed = torch.tanh(raw)
        log_prob = (normal.log_prob(raw) - torch.log1p(-squashed.square())).sum(-1)
        next_q = ours.target_critic(torch.cat([batch.next_obs, squashed], -1)).amin(0)
    torch.testing.assert_close(theirs.squeeze(1), next_q - log_prob, rtol=1e-4, atol=1e-4)
    mine = next_values(ours.actor, ours.target_critic, batch.next_obs, noise["next"])
    assert (theirs - mine).abs().max() > 0.1


def test_actor_loss_and_gradient() -> None:
    ours, impl = pair()
    slope = harness.share_log_std(ours, impl.modules.policy)
    batch, noise = harness.make_batch(), draw()
    with harness.draws(noise["policy"].unsqueeze(0)):
        loss = impl.compute_actor_grad(harness.as_d3rlpy(batch)).actor_loss
    mine = harness.gradients(ours, "actor", batch, noise)
    average = lambda parameter: harness.gradient_of(parameter) / harness.ROWS  # noqa: E731
    harness.assert_same(mine, {"loss": loss.detach() / harness.ROWS})
    harness.assert_same(mine, harness.actor(impl.modules.policy, average))
    harness.assert_same(mine, {"log_std": average(impl.modules.policy._logstd)[0] / slope})


def test_three_updates() -> None:
    ours, impl = pair()
    harness.share_log_std(ours, impl.modules.policy)
    for step in range(3):
        batch, before = harness.make_batch(step), harness.networks(impl)
        policy, critic = copy.deepcopy((ours.actor, ours.target_critic))
        terms, drawn = harness.update(ours, batch)
        values = next_values(policy, critic, batch.next_obs, drawn["critic"]["next"])
        impl.compute_target = lambda _, values=values: values
        with harness.draws(drawn["actor"]["policy"].unsqueeze(0)):
            losses = impl.inner_update(harness.as_d3rlpy(batch), step)
        harness.assert_moved(before, impl, "critic", "actor", "target_critic")
        harness.assert_networks_agree(ours, impl)
        torch.testing.assert_close(
            ours.actor.log_std, impl.modules.policy._logstd[0], rtol=1e-5, atol=1e-5
        )
        assert terms["critic_loss"].item() == pytest.approx(losses["critic_loss"], rel=1e-5)
        assert terms["actor_loss"].item() == pytest.approx(
            losses["actor_loss"] / harness.ROWS, rel=1e-5
        )
