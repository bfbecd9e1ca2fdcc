"""Discounted returns to go: the rewards from a step to the end of its episode."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def returns_to_go(rewards: Tensor, last: Tensor, gamma: float) -> Tensor:
    """Σ_k γ^k r_{t+k} up to row `last` (n,) of each row's episode; rewards (n,).

    Doubles the window in every pass: sums over 1, 2, 4, ... steps.
    """
    totals, rows = rewards.double(), torch.arange(len(rewards))
    longest, step = int((last - rows).max()) + 1 if len(rows) else 0, 1
    while step < longest:
        later = rows + step
        inside = later <= last
        further = totals[later.clamp_max(len(rows) - 1)]
        totals = torch.where(inside, totals + gamma**step * further, totals)
        step *= 2
    return totals.float()


class ReturnTracker:
    """Returns to go of the rows in a replay buffer; -inf until their episode has ended."""

    def __init__(
        self,
        capacity: int,
        num_envs: int,
        gamma: float,
        rewards_at: Callable[[Tensor], Tensor],
    ) -> None:
        self.capacity, self.gamma, self.rewards_at = capacity, gamma, rewards_at
        self.returns = torch.full((capacity,), -torch.inf)
        self._running: list[list[int]] = [[] for _ in range(num_envs)]  # rows of each episode

    def add(self, positions: Tensor, ended: Tensor) -> None:
        """Add one new row of each environment, in order; both (num_envs,)."""
        self.returns[positions] = -torch.inf
        rows = zip(positions.tolist(), ended.tolist(), strict=True)
        for env, (position, is_over) in enumerate(rows):
            self._running[env].append(position)
            if is_over:
                self._end(env)

    def _end(self, env: int) -> None:
        rows = torch.tensor(self._running[env][-self.capacity :])  # older ones are overwritten
        last = torch.full_like(rows, len(rows) - 1)
        self.returns[rows] = returns_to_go(self.rewards_at(rows), last, self.gamma)
        self._running[env] = []

    def forget_running(self, env: int) -> None:
        """Begin an episode with this environment's next row; the rows before it get no returns."""
        self._running[env] = []

    def state_dict(self) -> dict[str, Tensor]:
        running = {
            f"running.{env}": torch.tensor(rows, dtype=torch.int64)
            for env, rows in enumerate(self._running)
        }
        return {"returns": self.returns, **running}

    def load_state_dict(self, tensors: dict[str, Tensor]) -> None:
        self.returns = tensors["returns"].clone()
        self._running = [tensors[f"running.{env}"].tolist() for env in range(len(self._running))]
