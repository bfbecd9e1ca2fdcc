"""What is special to TQC: pooled and truncated target quantiles, the quantile Huber loss."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.support.online import (
    make,
    policy_with,
    random_batch,
    reference_batch,
    target_of_update,
)

from rl_training.algorithms.tqc import (
    TQCConfig,
    actor_loss,
    kept_quantiles,
    tqc_actor_loss,
    tqc_critic_loss,
    tqc_loss,
)
from rl_training.config import ConfigError

ATOMS = torch.tensor([[[1.0, 2.0, 3.0]], [[0.0, 4.0, 5.0]]])  # (critics, batch, quantiles)
CURRENT = torch.tensor([[[1.5, 2.5, 3.5]], [[2.0, 2.2, 6.0]]])
TARGET = [1.297, 2.287, 3.277, 4.267]


@pytest.mark.parametrize(
    ("drop", "kept"),
    [(0, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]), (1, [0.0, 1.0, 2.0, 3.0]), (2, [0.0, 1.0])],
)
def test_the_largest_of_all_quantiles_together_are_dropped(drop: int, kept: list[float]) -> None:
    both = torch.cat([ATOMS, ATOMS + 10], 1)  # rows are sorted each by itself
    assert kept_quantiles(both, drop).tolist() == [kept, [value + 10 for value in kept]]


@pytest.mark.parametrize(("ends", "target"), [(0.0, TARGET), (1.0, [1.0] * 4)])
def test_target_has_the_reference_values(ends: float, target: list[float]) -> None:
    nets = SimpleNamespace(
        actor=policy_with([-1.5]),
        target_critic=lambda _: ATOMS,
        critic=lambda _: CURRENT,
        temperature=lambda: torch.tensor(0.2),
    )
    config = TQCConfig(gamma=0.99, top_quantiles_to_drop_per_net=1)
    noise = {"next": torch.zeros(1, 1)}
    found = target_of_update("tqc", nets, reference_batch([1.0], [ends]), noise, config)
    assert found[0].tolist() == pytest.approx(target, abs=1e-5)


def test_critic_loss_is_the_mean_over_all_pairs() -> None:
    terms = tqc_critic_loss(quantiles=CURRENT, target_quantiles=torch.tensor([TARGET]))
    assert terms["critic_loss"].item() == pytest.approx(0.257716, abs=1e-5)
    assert terms["q_mean"].item() == pytest.approx(2.95, abs=1e-5)
    twice = tqc_critic_loss(
        quantiles=CURRENT.repeat(1, 2, 1), target_quantiles=torch.tensor([TARGET] * 2)
    )
    assert twice["critic_loss"].item() == pytest.approx(0.257716, abs=1e-5)


def test_a_quantile_is_pulled_by_its_share_of_the_targets() -> None:
    """Far from targets the Huber slope is 1: upwards with weight τ, downwards with 1 - τ."""
    quantiles = torch.tensor([[[0.0, 0.0]]], requires_grad=True)  # τ = 1/4 and 3/4
    for target, slopes in ((9.0, [-0.25, -0.75]), (-9.0, [0.75, 0.25])):
        terms = tqc_critic_loss(quantiles=quantiles, target_quantiles=torch.tensor([[target]]))
        (found,) = torch.autograd.grad(terms["critic_loss"], quantiles)
        assert (2 * found).flatten().tolist() == pytest.approx(slopes)


def test_actor_takes_the_mean_of_all_quantiles() -> None:
    log_probs, alpha = torch.tensor([-1.5]), torch.tensor(0.2)
    terms = tqc_actor_loss(quantiles=CURRENT, log_probs=log_probs, alpha=alpha)
    assert terms["policy_q_mean"].item() == pytest.approx(2.95, abs=1e-5)
    assert terms["actor_loss"].item() == pytest.approx(-0.3 - 2.95, abs=1e-5)


def test_only_targets_are_truncated() -> None:
    """The actor reads the largest quantiles too, of the online critics."""
    algorithm, batch = make("tqc", top_quantiles_to_drop_per_net=4), random_batch()
    noise = {"policy": torch.zeros(16, 2)}
    before = actor_loss(algorithm, batch, noise, algorithm.config)["actor_loss"].item()
    with torch.no_grad():
        algorithm.critic.biases[-1][0, :, -1] += 1000.0
    after = actor_loss(algorithm, batch, noise, algorithm.config)["actor_loss"].item()
    assert before - after == pytest.approx(1000 / 25, rel=1e-4)


def test_whole_loss_is_its_parts() -> None:
    terms = tqc_loss(
        quantiles=CURRENT,
        target_quantiles=torch.tensor([TARGET]),
        policy_quantiles=CURRENT,
        log_probs=torch.tensor([-1.5]),
        log_alpha=torch.tensor(0.2).log(),
        target_entropy=-2.0,
    )
    found = [terms[f"{name}_loss"].item() for name in ("critic", "actor", "temperature")]
    assert found == pytest.approx([0.257716, -3.25, 3.5 * -1.609438], abs=1e-5)


def test_critics_have_their_own_shape() -> None:
    algorithm = make("tqc", num_critics=3, num_quantiles=7, critic_hidden_sizes=(6,))
    assert algorithm.critic(torch.zeros(5, 5)).shape == (3, 5, 7)
    assert [tuple(weight.shape) for weight in algorithm.critic.weights] == [(3, 5, 6), (3, 6, 7)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"num_quantiles": 4, "top_quantiles_to_drop_per_net": 4},
            "top_quantiles_to_drop_per_net must be less than num_quantiles, which is 4",
        ),
        ({"top_quantiles_to_drop_per_net": -1}, "top_quantiles_to_drop_per_net: must be >= 0"),
        ({"num_critics": 0}, "num_critics: must be >= 1, got 0"),
        ({"num_quantiles": 0}, "num_quantiles: must be >= 1"),
        ({"critic_hidden_sizes": [0]}, "critic_hidden_sizes"),
    ],
)
def test_bad_options_fail_fast(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TQCConfig(**options)
