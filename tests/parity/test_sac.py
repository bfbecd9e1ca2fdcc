"""SAC beside Stable-Baselines3's SAC.

Agrees: the target (least critic, entropy, termination, discounts per row), the actor's and the
temperature's loss, and over three updates all networks, targets and the temperature. SB3 steps
temperature, critics, actor and we critics, actor, temperature; in both every loss sees the α from
before, the actor the new critics, and the temperature the policy from before: it is the same.

Differs on purpose:
- the log-density. SB3 takes log(1 - a² + 1e-6) for the tanh, we its exact value. Near a bound they
  are more than a nat apart. Its 1e-6 is set to 0 in the comparisons of updates.
- the critic loss. SB3 halves the sum over critics. Adam takes the same steps for half the gradient
  with half its epsilon, which is what the comparisons set.
- discrete actions, which SB3's SAC does not have.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.support.parity import harness, sb3

from rl_training.models.distributions import tanh_log_det

pytestmark = pytest.mark.parity
fixed_or_learned = pytest.mark.parametrize("alpha", [0.3, "auto"], ids=["fixed", "learned"])


def pair(alpha: float | str = "auto", *, exact: bool = True) -> tuple[Any, Any]:
    from stable_baselines3 import SAC

    theirs = sb3.make_theirs(SAC, tau=0.1, ent_coef="auto_0.3" if alpha == "auto" else alpha)
    if exact:
        theirs.actor.action_dist.epsilon = 0.0
        theirs.critic.optimizer.param_groups[0]["eps"] /= 2
    return sb3.make_ours("sac", theirs, tau=0.1, alpha=alpha), theirs


@fixed_or_learned
@pytest.mark.parametrize("discounts", [False, True], ids=["one step", "several steps"])
def test_three_updates(alpha: float | str, discounts: bool) -> None:
    ours, theirs = pair(alpha)
    moving = ["critic", "actor", "target_critic", *["temperature"] * (alpha == "auto")]
    for step in range(3):
        batch, before = sb3.make_batch(step, discounts=discounts), sb3.networks(theirs)
        assert ours.temperature().item() == pytest.approx(0.3, abs=0.01)  # not 1, where log α is 0
        terms, drawn = harness.update(ours, batch)
        logged = sb3.train(theirs, batch, drawn["actor"]["policy"], drawn["critic"]["next"])
        sb3.assert_moved(before, theirs, *moving)
        sb3.assert_agree(ours, theirs)
        assert terms["critic_loss"].item() == pytest.approx(2 * logged["critic_loss"], rel=1e-5)
        assert terms["actor_loss"].item() == pytest.approx(logged["actor_loss"], abs=1e-5)
        if alpha == "auto":
            temperature_loss = terms["temperature_loss"].item()
            assert temperature_loss == pytest.approx(logged["ent_coef_loss"], abs=1e-5)


def test_bounds_of_the_deviation_and_the_wanted_entropy_are_the_same() -> None:
    from stable_baselines3.sac import policies

    ours, theirs = pair()
    assert ours.actor.log_std_bounds == (policies.LOG_STD_MIN, policies.LOG_STD_MAX)
    log_probs = torch.tensor(theirs.target_entropy)
    terms = ours.losses["temperature"](
        ours, None, {}, ours.config, shared={"log_probs": -log_probs}
    )
    assert terms["temperature_loss"].item() == 0.0


def test_log_densities_differ_by_their_millionth() -> None:
    ours, theirs = pair(exact=False)
    assert theirs.actor.action_dist.epsilon == 1e-6
    batch, noise = sb3.make_batch(0), harness.normal(harness.ROWS, harness.ACTIONS)
    with torch.no_grad():
        for shift in (0.0, 8.0):  # in the middle, and at a bound
            ours.actor.net.layers[-1].bias[: harness.ACTIONS] += shift
            theirs.actor.mu.bias += shift
            with harness.draws(noise):
                actions, found = theirs.actor.action_log_prob(batch.obs)
            mean, log_std = ours.actor(batch.obs)
            own_actions, own = ours.actor.draw(batch.obs, noise)
            exact = tanh_log_det((mean + log_std.exp() * noise).double())
            rounded = torch.log(exact.exp() + 1e-6)
            torch.testing.assert_close(own_actions, actions, atol=1e-6, rtol=0)
            difference = (rounded - exact).sum(-1)
            # 1 - a² has lost most of its digits at a bound, there
            tolerance = 1e-5 if shift == 0.0 else 0.1
            torch.testing.assert_close((own - found).double(), difference, atol=tolerance, rtol=0)
            assert (difference.max() > 1.0) == (shift == 8.0)
