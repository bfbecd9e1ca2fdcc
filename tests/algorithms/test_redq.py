"""What is special to REDQ: the least of a random subset, rounds of critic updates."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.support.online import (
    make,
    moved,
    policy_with,
    random_batch,
    reference_batch,
    snapshot,
    target_of_update,
)

from rl_training.algorithms.redq import (
    REDQConfig,
    redq_actor_loss,
    redq_critic_loss,
    redq_loss,
)
from rl_training.algorithms.soft import random_subset
from rl_training.config import ConfigError
from rl_training.data import Batch

TARGET_Q = torch.tensor([[5.0, 1.0], [4.0, 2.0], [6.0, 0.0], [3.0, 3.0], [7.0, 1.5]])
Q_VALUES = torch.tensor([[4.0, 2.0], [5.0, 1.0], [4.5, 2.5], [5.5, 1.5], [4.2, 1.8]])


def test_target_is_the_least_of_the_subset_with_entropy() -> None:
    nets = SimpleNamespace(
        actor=policy_with([-2.0, 1.0]),
        target_critic=lambda obs, actions, subset: TARGET_Q[subset],
        critic=lambda obs, actions: Q_VALUES,
        temperature=lambda: torch.tensor(0.1),
    )
    noise = {"next": torch.zeros(2, 1), "subset": torch.tensor([1, 3])}
    batch, config = reference_batch([1.0, 0.0], [0.0, 0.0]), REDQConfig(gamma=0.99)
    target = target_of_update("redq", nets, batch, noise, config)
    assert target.tolist() == pytest.approx([4.168, 1.881], abs=1e-5)
    ended = target_of_update("redq", nets, reference_batch([1.0, 0.0], [0.0, 1.0]), noise, config)
    assert ended.tolist() == pytest.approx([4.168, 0.0], abs=1e-5)


def test_the_subset_is_uniform_over_pairs() -> None:
    """The mean over draws of the least of two nears that over all pairs."""
    algorithm = make("redq", num_critics=5, subset_size=2)
    total, rounds = torch.zeros(2), 4000
    for _ in range(rounds):
        subset = random_subset(algorithm, algorithm.generator)
        assert len(set(subset.tolist())) == 2
        total += TARGET_Q[subset].amin(0)
    assert (total / rounds).tolist() == pytest.approx([4.0, 0.8], abs=0.06)


def test_critic_loss_is_a_sum_over_all_critics() -> None:
    terms = redq_critic_loss(q_values=Q_VALUES, target_q=torch.tensor([4.168, 1.881]))
    assert terms["critic_loss"].item() == pytest.approx(1.965562, abs=1e-5)


def test_actor_takes_the_mean_of_all_critics() -> None:
    q_values = Q_VALUES.clone().requires_grad_()
    terms = redq_actor_loss(
        q_values=q_values, log_probs=torch.tensor([-1.0, 2.0]), alpha=torch.tensor(0.1)
    )
    assert terms["policy_q_mean"].item() == pytest.approx((4.64 + 1.76) / 2, abs=1e-5)
    assert terms["actor_loss"].item() == pytest.approx(0.05 - 3.2, abs=1e-5)
    (slopes,) = torch.autograd.grad(terms["actor_loss"], q_values)
    torch.testing.assert_close(slopes, torch.full((5, 2), -0.1))


def test_whole_loss_is_its_parts() -> None:
    terms = redq_loss(
        q_values=Q_VALUES,
        target_q=torch.tensor([4.168, 1.881]),
        policy_q_values=Q_VALUES,
        log_probs=torch.tensor([-1.0, 2.0]),
        log_alpha=torch.tensor(0.1).log(),
        target_entropy=-2.0,
    )
    found = [terms[f"{name}_loss"].item() for name in ("critic", "actor", "temperature")]
    assert found == pytest.approx([1.965562, -3.15, -1.5 * 2.302585], abs=1e-5)


class Recorded:
    """What a REDQ learner does in an update, in order, with what it was given."""

    def __init__(self, algorithm: Any) -> None:
        self.algorithm = algorithm
        self.steps: list[str] = []
        self.batches: list[Batch] = []
        self.noise: list[Any] = []
        self._minimize, self._track = algorithm.minimize, algorithm.track_targets
        algorithm.minimize, algorithm.track_targets = self.minimize, self.track

    def minimize(self, network: str, batch: Batch, noise: Any = {}, **shared: Any) -> Any:  # noqa: B006
        self.steps.append(network)
        self.batches.append(batch)
        self.noise.append(noise)
        return self._minimize(network, batch, noise, **shared)

    def track(self, tau: float) -> None:
        before = snapshot(self.algorithm)
        self._track(tau)
        assert moved(before, self.algorithm) == {"target_critic"}
        self.steps.append(f"track {tau}")


def test_a_round_updates_and_tracks_the_critics_g_times_and_the_policy_once() -> None:
    algorithm = make("redq", batch_size=8, tau=0.25)
    recorded, batch = Recorded(algorithm), random_batch(rows=24)
    for rounds in (1, 2):
        algorithm.update(batch)
        assert recorded.steps == ["critic", "track 0.25"] * 3 + ["actor", "temperature"]
        assert algorithm.update_count == 3 * rounds
        starts = (0, 8, 16, 16, 16)  # the policy learns from the last part
        for start, part in zip(starts, recorded.batches, strict=True):
            assert torch.equal(part.obs, batch.obs[start : start + 8])
            assert torch.equal(part.rewards, batch.rewards[start : start + 8])
        recorded.steps.clear()
        recorded.batches.clear()


def test_each_critic_update_draws_a_subset_for_all_of_its_rows() -> None:
    algorithm = make("redq", num_critics=10, subset_size=3, batch_size=2)
    recorded = Recorded(algorithm)
    algorithm.update(random_batch(rows=40))
    drawn = [noise["subset"] for noise in recorded.noise if "subset" in noise]
    assert len(drawn) == 20
    assert all(subset.shape == (3,) for subset in drawn)
    assert len({frozenset(subset.tolist()) for subset in drawn}) > 10
    fresh = [noise["next"] for noise in recorded.noise if "next" in noise]
    assert not torch.equal(fresh[0], fresh[1])


def test_a_run_collects_one_step_per_round(small_config: Any) -> None:
    """20 steps after the warm-up, 3 updates each, of which one moves the policy."""
    from rl_training.runtime import Callback, train

    seen = []

    class Counts(Callback):
        def on_update_end(self, state: Any, terms: Any) -> None:
            seen.append((state.update_count, "actor_loss" in terms))

    config = small_config(
        "redq",
        total_timesteps=30,
        algo_kwargs={"num_critics": 3, "gradient_updates_per_step": 3},
    )
    result = train(config, callbacks=[Counts()])
    assert seen == [(3 * count, True) for count in range(1, 21)]
    assert result.metrics


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"num_critics": 3, "subset_size": 4},
            "subset_size must be <= num_critics, which is 3",
        ),
        ({"subset_size": 0}, "subset_size: must be >= 1, got 0"),
        ({"num_critics": 0}, "num_critics: must be >= 1, got 0"),
    ],
)
def test_bad_options_fail_fast(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        REDQConfig(**options)
