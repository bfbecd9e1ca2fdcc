"""Discounted returns to go: the rewards from a step to the end of its episode."""

from __future__ import annotations

from collections import deque
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
    """Returns to go of the rows in a replay buffer; -inf until their episode has ended.

    Rows are numbered from the first one ever written; number n lies at position n % capacity.
    """

    def __init__(
        self,
        capacity: int,
        num_envs: int,
        gamma: float,
        rewards_at: Callable[[Tensor], Tensor],
    ) -> None:
        self.capacity, self.gamma, self.rewards_at = capacity, gamma, rewards_at
        self.returns = torch.full((capacity,), -torch.inf)  # by position
        # rows of each running episode; more than the buffer holds are of no use
        self._running: list[deque[int]] = [deque(maxlen=capacity) for _ in range(num_envs)]

    def add(self, numbers: range, ended: Tensor) -> None:
        """Add one new row of each environment, in order; both of length num_envs."""
        self.returns[torch.tensor(numbers) % self.capacity] = -torch.inf
        for env, (number, is_over) in enumerate(zip(numbers, ended.tolist(), strict=True)):
            self._running[env].append(number)
            if is_over:
                self._end(env, oldest=numbers.stop - self.capacity)

    def _end(self, env: int, oldest: int) -> None:
        stored = [number for number in self._running[env] if number >= oldest]
        rows = torch.tensor(stored) % self.capacity
        last = torch.full_like(rows, len(rows) - 1)
        self.returns[rows] = returns_to_go(self.rewards_at(rows), last, self.gamma)
        self._running[env].clear()

    def forget_running(self, env: int) -> None:
        """Begin an episode with this environment's next row; the rows before it get no returns."""
        self._running[env].clear()

    def rebuild(self, numbers: range, env_ids: Tensor, first: Tensor, ended: Tensor) -> None:
        """Compute again all that is tracked, from the stored rows in the order of writing.

        A return depends on the rewards after it alone, so it comes out the same to the bit.
        """
        by_env = torch.sort(env_ids, stable=True).indices
        env, begins = env_ids[by_env], first[by_env].clone()
        begins[:1] = True
        begins[1:] |= env[1:] != env[:-1]
        starts = begins.nonzero().flatten()
        stops = torch.cat([starts[1:], torch.tensor([len(env)])])
        episode = begins.cumsum(0) - 1
        last = (stops - 1)[episode]
        rows = (numbers.start + by_env) % self.capacity
        returns = returns_to_go(self.rewards_at(rows), last, self.gamma)
        self.returns.fill_(-torch.inf)
        self.returns[rows] = torch.where(ended[by_env][last], returns, -torch.inf)
        for index, running in enumerate(self._running):
            running.clear()
            newest = (env == index).nonzero().flatten()[-1:]
            if len(newest) and not ended[by_env][newest]:
                first_row = int(starts[episode[newest]])
                running.extend((numbers.start + by_env[first_row : int(newest) + 1]).tolist())
