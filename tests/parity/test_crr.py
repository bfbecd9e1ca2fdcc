"""CRR beside d3rlpy's CRR.

Agrees, for both advantage types and both weight types: target (smallest target critic at a
clipped draw of the target policy), critic loss, actor loss, every gradient, and with one critic
whole updates, hard (both copy in the first update, then every interval) and soft. The standard
deviation is a second head in [-20, 2] in both.

Differs on purpose:
- with several critics the advantage takes the smallest; d3rlpy takes their mean there, though the
  smallest in the target. With one critic, d3rlpy's default and the paper's number, it is the same.
- d3rlpy's target policy begins as another random network; ours as a copy. Here weights are copied.
- d3rlpy always acts by resampling with softmax(Q), ours on request (`critic_weighted_policy`).
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.support.parity import harness

pytestmark = pytest.mark.parity
variants = pytest.mark.parametrize(
    ("advantage_type", "weight_type"),
    [(advantage, weight) for advantage in ("mean", "max") for weight in ("exp", "binary")],
)
SAMPLES = 3


def pair(critics: int = 1, **options: Any) -> tuple[Any, Any]:
    shared = {
        "gamma": 0.9, "tau": 0.1, "beta": 0.5, "n_action_samples": SAMPLES, "max_weight": 1.2,
        "target_update_interval": 2,
    }  # fmt: skip
    update = options.pop("target_update", "hard")
    ours = harness.make_ours("crr", num_critics=critics, target_update=update, **shared, **options)
    impl = harness.make_d3rlpy(
        "CRR", n_critics=critics, target_update_type=update, **shared, **options
    )
    harness.copy_weights(impl, ours)
    return ours, impl


def noise() -> dict[str, torch.Tensor]:
    rows, width = harness.ROWS, harness.ACTIONS
    return {
        "next": harness.normal(rows, width),
        "samples": harness.normal(SAMPLES, rows, width, seed=2),
    }


@pytest.mark.parametrize("critics", [1, 2])
def test_critic_loss_and_gradient(critics: int) -> None:
    ours, impl = pair(critics)
    batch, drawn = harness.make_batch(), noise()
    with harness.draws(drawn["next"]):
        loss = impl.compute_critic_grad(harness.as_d3rlpy(batch)).critic_loss
    mine = harness.gradients(ours, "critic", batch, drawn)
    harness.assert_same(mine, {"loss": loss.detach()})
    harness.assert_same(mine, harness.ensemble(impl.modules.q_funcs, harness.gradient_of))


@variants
def test_actor_loss_and_gradient(advantage_type: str, weight_type: str) -> None:
    ours, impl = pair(advantage_type=advantage_type, weight_type=weight_type)
    batch, drawn = harness.make_batch(), noise()
    with harness.draws(drawn["samples"]):
        loss = impl.compute_actor_grad(harness.as_d3rlpy(batch)).actor_loss
    mine = harness.gradients(ours, "actor", batch, drawn)
    harness.assert_same(mine, {"loss": loss.detach()})
    harness.assert_same(mine, harness.actor(impl.modules.policy, harness.gradient_of))


@variants
@pytest.mark.parametrize("target_update", ["hard", "soft"])
def test_four_updates(advantage_type: str, weight_type: str, target_update: str) -> None:
    ours, impl = pair(
        advantage_type=advantage_type, weight_type=weight_type, target_update=target_update
    )
    for step in range(4):
        batch, before = harness.make_batch(step), harness.networks(impl)
        terms, drawn = harness.update(ours, batch)
        with harness.draws(drawn["critic"]["next"], drawn["actor"]["samples"]):
            losses = impl.inner_update(harness.as_d3rlpy(batch), step)
        moving = target_update == "soft" or step % 2 == 0
        targets = ("target_actor", "target_critic") if moving else ()
        harness.assert_moved(before, impl, "critic", "actor", *targets)
        harness.assert_networks_agree(ours, impl)
        for name, value in losses.items():
            assert terms[name].item() == pytest.approx(value, rel=1e-5, abs=1e-5)


def test_two_critics_in_the_advantage() -> None:
    """d3rlpy averages them; with its mean replaced by the smallest it is our loss."""
    ours, impl = pair(critics=2)
    batch, drawn = harness.make_batch(), noise()
    mine = harness.gradients(ours, "actor", batch, drawn)["loss"]
    theirs = harness.as_d3rlpy(batch)
    with harness.draws(drawn["samples"]):
        averaged = impl.compute_actor_grad(theirs).actor_loss.item()
    plain = impl._q_func_forwarder.compute_expected_q
    impl._q_func_forwarder.compute_expected_q = lambda obs, actions: plain(obs, actions, "min")
    with harness.draws(drawn["samples"]):
        smallest = impl.compute_actor_grad(theirs).actor_loss.item()
    assert mine.item() == pytest.approx(smallest, abs=1e-5)
    assert mine.item() != pytest.approx(averaged, abs=1e-3)
