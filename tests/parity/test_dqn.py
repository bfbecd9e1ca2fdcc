"""DQN beside Stable-Baselines3's DQN.

Agrees, with `double: false`: the target with termination and discounts per row, the Huber loss, the
clipped gradient, over three updates both networks, the fall of ε, and with one environment when the
target is copied.

Differs on purpose:
- ours is double by default, SB3's never is.
- with several environments SB3 copies every `interval // n_envs` calls, which is more often than
  asked for unless one divides the other; ours when a multiple of the interval is reached or passed.
- dueling networks and prioritised replay are not in SB3.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.support.parity import harness, sb3

pytestmark = pytest.mark.parity


def pair(**options: Any) -> tuple[Any, Any]:
    from stable_baselines3 import DQN

    theirs = sb3.make_theirs(
        DQN, max_grad_norm=0.1, target_update_interval=10, tau=0.4, exploration_fraction=0.2,
        exploration_initial_eps=0.9, exploration_final_eps=0.1,
    )  # fmt: skip
    options = {"double": False, **options}
    ours = sb3.make_ours(
        "dqn", theirs, max_grad_norm=0.1, target_update_interval=10, tau=0.4,
        exploration_fraction=0.2, epsilon_start=0.9, epsilon_end=0.1, **options,
    )  # fmt: skip
    return ours, theirs


@pytest.mark.parametrize("discounts", [False, True], ids=["one step", "several steps"])
def test_three_updates(discounts: bool) -> None:
    ours, theirs = pair()
    for step in range(3):
        batch = sb3.make_batch(step, discounts=discounts, discrete=True)
        before = sb3.networks(theirs)
        terms, _ = harness.update(ours, batch)
        logged = sb3.train(theirs, batch)
        sb3.assert_moved(before, theirs, "critic")
        sb3.assert_agree(ours, theirs)
        assert terms["critic_loss"].item() == pytest.approx(logged["loss"], rel=1e-5)


def test_the_gradient_is_clipped_alike() -> None:
    """Adam hardly sees the scale of a gradient, so its first moment is compared."""
    ours, theirs = pair()
    batch = sb3.make_batch(0, discrete=True)
    harness.update(ours, batch)
    sb3.train(theirs, batch)
    total = 0.0
    own = ours.optimizers["critic"]
    for mine, other in zip(ours.critic.parameters(), theirs.q_net.parameters(), strict=True):
        moment = theirs.policy.optimizer.state[other]["exp_avg"]
        torch.testing.assert_close(own.state[mine]["exp_avg"], moment, atol=1e-6, rtol=1e-4)
        total += float(moment.square().sum())
    assert total**0.5 == pytest.approx(0.1 * (1 - 0.9), rel=1e-3)  # so that the clip is seen


def test_double_differs_unless_both_networks_choose_alike() -> None:
    batch = sb3.make_batch(0, discrete=True)
    for same in (False, True):
        ours, theirs = pair(double=True)
        if same:
            ours.target_critic.load_state_dict(ours.critic.state_dict())
            theirs.q_net_target.load_state_dict(theirs.q_net.state_dict())
        chosen = [
            network(batch.next_obs).argmax(-1) for network in (ours.critic, ours.target_critic)
        ]
        assert torch.equal(*chosen) == same
        loss = harness.update(ours, batch)[0]["critic_loss"].item()
        their_loss = sb3.train(theirs, batch)["loss"]
        assert (abs(loss - their_loss) < 1e-5) == same


@pytest.mark.parametrize(("envs", "equal"), [(1, True), (2, True), (5, True), (3, False)])
def test_when_the_target_is_copied(envs: int, equal: bool) -> None:
    ours, theirs = pair()
    theirs.n_envs = envs
    copies: dict[str, list[int]] = {"ours": [], "theirs": []}
    ours.track_targets = lambda tau: copies["ours"].append(after)
    for before in range(0, 60, envs):
        after, start = before + envs, sb3.networks(theirs)["target_critic"]["layers.0.weight"]
        ours.after_collecting(before, after)
        theirs._on_step()
        if not torch.equal(start, sb3.networks(theirs)["target_critic"]["layers.0.weight"]):
            copies["theirs"].append(after)
        with torch.no_grad():  # so that a copy is seen
            theirs.q_net.q_net[0].weight += 1.0
    assert (copies["ours"] == copies["theirs"]) == equal
    assert len(copies["ours"]) == 6
    if not equal:
        assert copies == {"ours": [12, 21, 30, 42, 51, 60], "theirs": [9, 18, 27, 36, 45, 54]}


def test_a_copy_takes_the_same_share() -> None:
    ours, theirs = pair()
    for step in range(10):
        ours.after_collecting(step, step + 1)
        theirs._on_step()
    sb3.assert_agree(ours, theirs)


class Dice:
    """Even throws, so that the share of random actions is ε; these are all -1."""

    def random(self, count: int) -> Any:
        return (np.arange(count) + 0.5) / count

    def integers(self, _: int, size: int) -> Any:
        return np.full(size, -1)


@pytest.mark.parametrize("progress", [0.0, 0.05, 0.1, 0.19, 0.2, 0.5, 1.0])
def test_epsilon_falls_alike(progress: float) -> None:
    ours, theirs = pair()
    actions = ours.explore(np.zeros((2000, harness.OBS), np.float32), Dice(), progress)
    epsilon = theirs.exploration_schedule(1 - progress)
    assert (actions == -1).mean() == pytest.approx(epsilon, abs=6e-4)
