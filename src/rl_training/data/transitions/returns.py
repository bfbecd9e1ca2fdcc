"""Discounted returns to go: what an episode really gave after each of its steps."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def returns_to_go(rewards: Tensor, last: Tensor, gamma: float) -> Tensor:
    """Σ_k γ^k r_{t+k} up to row `last` (n,) of each row's episode; rewards (n,).

    Sums over 1, 2, 4, ... steps are put together from two halves, so that it takes few passes.
    """
    totals, rows = rewards.double(), torch.arange(len(rewards))
    longest, step = int((last - rows).max()) + 1 if len(rows) else 0, 1
    while step < longest:
        ahead = rows + step
        inside = ahead <= last
        further = totals[ahead.clamp_max(len(rows) - 1)]
        totals = torch.where(inside, totals + gamma**step * further, totals)
        step *= 2
    return totals.float()


class ReturnTracker:
    """Returns to go of the rows in a replay, known once their episode has ended, until then -inf."""

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

    def add(self, places: Tensor, ended: Tensor) -> None:
        """One new row of each environment, in order; both (num_envs,)."""
        self.returns[places] = -torch.inf
        for env, (place, is_over) in enumerate(zip(places.tolist(), ended.tolist(), strict=True)):
            self._running[env].append(place)
            if is_over:
                self._end(env)

    def _end(self, env: int) -> None:
        rows = torch.tensor(self._running[env][-self.capacity :])  # older ones are overwritten
        last = torch.full_like(rows, len(rows) - 1)
        self.returns[rows] = returns_to_go(self.rewards_at(rows), last, self.gamma)
        self._running[env] = []

    def forget_running(self, env: int) -> None:
        """This environment's next row begins an episode; the rows before it get no returns."""
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
