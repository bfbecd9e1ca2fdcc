"""What every algorithm that collects does alike: rows over several steps, critics first."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.support.online import make, random_batch, spec_of, target_of_update
from torch import Tensor

from rl_training.algorithms import list_algorithm_specs
from rl_training.data import Batch

NAMES = [spec.name for spec in list_algorithm_specs() if "online" in spec.regimes]


def noise_for(name: str) -> dict[str, Any]:
    normal = torch.randn(16, 2, generator=torch.Generator().manual_seed(3))
    return {"next": normal, "smoothing": normal, "subset": torch.tensor([0, 3])}


@pytest.mark.parametrize("name", NAMES)
def test_rows_over_several_steps_bring_their_own_discounts(name: str) -> None:
    """y = r + discount (1 - d) V(s'), with V from the same update at discount 1."""
    spec, noise = spec_of(name), noise_for(name)
    algorithm = make(name, gamma=0.5)

    def target(batch: Batch) -> Tensor:
        found = target_of_update(name, algorithm, batch, noise, algorithm.config)
        return found if found.ndim == 2 else found.unsqueeze(1)

    plain = random_batch(spec)
    undiscounted = random_batch(spec, discounts=torch.ones(16))
    object.__setattr__(undiscounted, "terminations", torch.zeros(16))
    values = target(undiscounted) - plain.rewards.unsqueeze(1)
    assert values.abs().max() > 0.01
    for discounts in (None, torch.linspace(0.3, 0.99, 16)):
        batch = random_batch(spec, discounts=discounts)
        factor = (0.5 if discounts is None else discounts) * (1 - plain.terminations)
        expected = plain.rewards.unsqueeze(1) + factor.unsqueeze(1) * values
        torch.testing.assert_close(target(batch), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "dqn"])
def test_the_actor_sees_the_critics_of_the_same_update(name: str) -> None:
    algorithm, order = make(name, batch_size=16), []
    plain = algorithm.minimize

    def minimize(network: str, batch: Batch, noise: Any) -> Any:
        order.append(network)
        return plain(network, batch, noise)

    algorithm.minimize = minimize
    while "actor" not in order:  # TD3 waits for it
        order.clear()
        algorithm.update(random_batch())
    assert order == list(algorithm.losses)
    assert order[:2] == ["critic", "actor"]
