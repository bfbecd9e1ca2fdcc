"""TQC beside sb3-contrib's TQC.

Agrees: pooled, sorted and truncated target quantiles with entropy, termination and discounts per
row, the quantile Huber loss as a mean over all pairs, the actor's mean over all quantiles, and over
three updates all networks, targets and the temperature.

Differs on purpose:
- the log-density, as in `test_sac`; their 1e-6 is set to 0 here.
- defaults: ours are the paper's, five critics of three layers of 512; theirs two of 256, 256.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.parity import harness, sb3

pytestmark = pytest.mark.parity
WIDTHS = (6, 7)


def pair(drop: int, alpha: float | str) -> tuple[Any, Any]:
    from sb3_contrib import TQC

    networks = {
        "net_arch": {"pi": list(harness.HIDDEN), "qf": list(WIDTHS)}, "n_quantiles": 5,
        "n_critics": 3,
    }  # fmt: skip
    theirs = sb3.make_theirs(
        TQC, tau=0.1, policy_kwargs=networks, top_quantiles_to_drop_per_net=drop,
        ent_coef="auto_0.3" if alpha == "auto" else alpha,
    )  # fmt: skip
    theirs.actor.action_dist.epsilon = 0.0
    ours = sb3.make_ours(
        "tqc", theirs, tau=0.1, alpha=alpha, critic_hidden_sizes=WIDTHS, num_critics=3,
        num_quantiles=5, top_quantiles_to_drop_per_net=drop,
    )  # fmt: skip
    return ours, theirs


@pytest.mark.parametrize(
    ("drop", "alpha", "discounts"), [(0, 0.3, False), (2, "auto", False), (2, "auto", True)]
)
def test_three_updates(drop: int, alpha: float | str, discounts: bool) -> None:
    ours, theirs = pair(drop, alpha)
    moving = ["critic", "actor", "target_critic", *["temperature"] * (alpha == "auto")]
    for step in range(3):
        batch, before = sb3.make_batch(step, discounts=discounts), sb3.networks(theirs)
        terms, drawn = harness.update(ours, batch)
        logged = sb3.train(theirs, batch, drawn["actor"]["policy"], drawn["critic"]["next"])
        sb3.assert_moved(before, theirs, *moving)
        sb3.assert_agree(ours, theirs)
        named = {"critic_loss": "critic_loss", "actor_loss": "actor_loss"}
        if alpha == "auto":
            named["temperature_loss"] = "ent_coef_loss"
        for name, their_name in named.items():
            assert terms[name].item() == pytest.approx(logged[their_name], rel=1e-5, abs=1e-5)
