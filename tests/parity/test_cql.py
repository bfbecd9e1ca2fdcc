"""CQL beside d3rlpy's CQL.

Agrees: the conservative term of each critic (importance-weighted logsumexp over uniform, current
and next actions, the last evaluated at s), critic loss as sum over critics, targets with entropy
and with the best of N actions, Lagrange multiplier (stepped before the critics, which see the
new one), actor loss, every gradient, and over three updates all networks, targets and the
multiplier, at a fixed temperature.

Differs on purpose:
- without entropy d3rlpy's target takes the policy's mean action; the authors, CORL and we draw one.
  With a draw of zeros it is the same.
- the learned temperature. d3rlpy steps α with the loss -α (log π + H) before the actor, which
  sees the new α; we step log α with -log α (log π + H) after the actor. The gradients agree up to
  the factor α, and in d3rlpy's order the first update is the same.
- `cql_temperature`, `importance_sampling: false` and the bounds of the gap are not in d3rlpy.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tests.support.parity import harness

pytestmark = pytest.mark.parity
SAMPLES, TEMPERATURE, GAP = 4, 0.3, 1.5
BACKUPS = {  # our options, d3rlpy's options, draws for the target
    "entropy": ({"backup_entropy": True}, {"soft_q_backup": True}, 1),
    "best of N": ({"max_target_backup": True}, {"max_q_backup": True}, SAMPLES),
}
backups = pytest.mark.parametrize("backup", BACKUPS)
multipliers = pytest.mark.parametrize("learned", [False, True], ids=["fixed", "lagrange"])


def pair(backup: str | None = None, learned: bool = False, **options: Any) -> tuple[Any, Any]:
    our_backup, their_backup, _ = BACKUPS[backup] if backup else ({}, {}, 1)
    ours = harness.make_ours(
        "cql", gamma=0.9, tau=0.1, cql_alpha=2.0, num_cql_samples=SAMPLES, learning_rate=0.02,
        cql_target_gap=GAP if learned else None,
        **{"alpha": TEMPERATURE, **our_backup, **options},
    )  # fmt: skip
    automatic = ours.config.alpha == "auto"
    impl = harness.make_d3rlpy(
        "CQL", gamma=0.9, tau=0.1, conservative_weight=2.0, n_action_samples=SAMPLES,
        alpha_learning_rate=0.02 if learned else 0.0, alpha_threshold=GAP if learned else 0.0,
        initial_temperature=1.0 if automatic else TEMPERATURE,
        temp_learning_rate=ours.config.network_learning_rate("temperature") if automatic else 0.0,
        **their_backup,
    )  # fmt: skip
    harness.copy_weights(impl, ours)
    return ours, impl


def noise(backups: int = 1) -> dict[str, torch.Tensor]:
    rows, width = harness.ROWS, harness.ACTIONS
    return {
        "uniform": harness.normal(SAMPLES, rows, width, seed=1).clamp(-1, 1),
        "current": harness.normal(SAMPLES, rows, width, seed=2),
        "next": harness.normal(SAMPLES, rows, width, seed=3),
        "backup": harness.normal(backups, rows, width, seed=4),
        "policy": harness.normal(rows, width, seed=5),
    }


def for_critic(drawn: dict[str, torch.Tensor], backup: str | None) -> list[torch.Tensor]:
    """In d3rlpy's order and shapes: target, π(s), π(s'), uniform with samples innermost."""
    target = {"entropy": [drawn["backup"][0]], "best of N": [drawn["backup"]]}.get(backup or "", [])
    uniform = drawn["uniform"].transpose(0, 1).reshape(-1, harness.ACTIONS)
    return [*target, drawn["current"], drawn["next"], uniform]


@backups
@multipliers
def test_critic_loss_and_gradient(backup: str, learned: bool) -> None:
    ours, impl = pair(backup, learned)
    batch, drawn = harness.make_batch(), noise(BACKUPS[backup][2])
    slopes = []
    if learned:  # d3rlpy steps its multiplier inside the critic's loss
        slopes.append(harness.gradients(ours, "multiplier", batch, drawn)["log"].item())
        ours.minimize("multiplier", batch, drawn)
        optimizer, parameter = impl.modules.alpha_optim, impl.modules.log_alpha._parameter
        step = optimizer.step
        optimizer.step = lambda: (slopes.append(parameter.grad.item()), step())
    with harness.draws(*for_critic(drawn, backup)):
        losses = impl.compute_critic_grad(harness.as_d3rlpy(batch))
    assert slopes == pytest.approx(slopes[::-1], rel=1e-5)
    assert len(slopes) == 2 * learned
    mine = harness.gradients(ours, "critic", batch, drawn)
    harness.assert_same(mine, {"loss": losses.critic_loss.detach()})
    harness.assert_same(mine, harness.ensemble(impl.modules.q_funcs, harness.gradient_of))
    assert losses.conservative_loss.abs() > 0.1


def test_actor_loss_and_gradient() -> None:
    ours, impl = pair()
    batch, drawn = harness.make_batch(), noise()
    with harness.draws(drawn["policy"]):
        loss = impl.compute_actor_grad(harness.as_d3rlpy(batch)).actor_loss
    mine = harness.gradients(ours, "actor", batch, drawn)
    harness.assert_same(mine, {"loss": loss.detach()})
    harness.assert_same(mine, harness.actor(impl.modules.policy, harness.gradient_of))


@backups
@multipliers
def test_three_updates_at_a_fixed_temperature(backup: str, learned: bool) -> None:
    ours, impl = pair(backup, learned)
    for step in range(3):
        batch, before = harness.make_batch(step), harness.networks(impl)
        terms, drawn = harness.update(ours, batch)
        with harness.draws(*for_critic(drawn["critic"], backup), drawn["actor"]["policy"]):
            losses = impl.inner_update(harness.as_d3rlpy(batch), step)
        moving = ["critic", "actor", "target_critic", *["multiplier"] * learned]
        harness.assert_moved(before, impl, *moving)
        harness.assert_networks_agree(ours, impl)
        for name in ("critic_loss", "actor_loss"):
            assert terms[name].item() == pytest.approx(losses[name], rel=1e-5, abs=1e-5)


def test_without_entropy_d3rlpy_takes_the_mean_action() -> None:
    ours, impl = pair()
    batch, drawn = harness.make_batch(), noise()
    with harness.draws(*for_critic(drawn, None)):
        loss = impl.compute_critic_grad(harness.as_d3rlpy(batch)).critic_loss.item()
    drawn_loss = harness.gradients(ours, "critic", batch, drawn)["loss"].item()
    drawn["backup"] = torch.zeros_like(drawn["backup"])
    mine = harness.gradients(ours, "critic", batch, drawn)
    assert mine["loss"].item() == pytest.approx(loss, abs=1e-5)
    harness.assert_same(mine, harness.ensemble(impl.modules.q_funcs, harness.gradient_of))
    assert drawn_loss != pytest.approx(loss, abs=1e-3)


def test_temperature_gradient_agrees_up_to_the_temperature() -> None:
    ours, impl = pair("entropy", alpha="auto")
    with torch.no_grad():
        for log in (ours.temperature.log, impl.modules.log_temp._parameter):
            log.fill_(math.log(0.4))
    batch, drawn = harness.make_batch(), noise()
    log_probs = ours.actor.draw(batch.obs, drawn["policy"])[1].detach()
    loss = impl.update_temp(log_probs.unsqueeze(1)).item()
    mine = harness.gradients(ours, "temperature", batch, {}, shared={"log_probs": log_probs})
    slope = impl.modules.log_temp._parameter.grad.item()
    assert slope == pytest.approx(0.4 * mine["log"].item(), rel=1e-5)
    assert loss / 0.4 == pytest.approx(mine["loss"].item() / math.log(0.4), rel=1e-5)


def test_automatic_temperature_in_the_order_of_d3rlpy() -> None:
    ours, impl = pair("entropy", alpha="auto", temperature_learning_rate=0.02)
    assert list(ours.losses) == ["critic", "actor", "temperature"]  # ours
    batch, drawn, before = harness.make_batch(), noise(), harness.networks(impl)
    shared = {"log_probs": ours.actor.draw(batch.obs, drawn["policy"])[1].detach()}
    ours.minimize("critic", batch, drawn)
    ours.minimize("temperature", batch, shared=shared)
    ours.minimize("actor", batch, drawn)
    ours.track_targets(ours.config.tau)
    with harness.draws(*for_critic(drawn, "entropy"), drawn["policy"]):
        impl.inner_update(harness.as_d3rlpy(batch), 0)
    harness.assert_moved(before, impl, "critic", "actor", "target_critic", "temperature")
    harness.assert_networks_agree(ours, impl)
