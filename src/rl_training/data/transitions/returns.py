"""Discounted returns to go: the rewards from a step to the end of its episode.

A termination ends the sum. An episode that was cut, by a truncation or where a log stops, would have
gone on. For a lower bound of its value, what is missing counts as the worst reward r_min repeated for
ever, γ^k min(r_min, 0) / (1-γ) after k steps, which holds as long as no later reward is below r_min.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import torch
from torch import Tensor


def returns_to_go(
    rewards: Tensor, last: Tensor, gamma: float, terminated: Tensor, worst: float | None = None
) -> Tensor:
    """Σ_k γ^k r_{t+k} up to row `last` (n,) of each row's episode; with `worst`, a lower bound.

    `rewards` (n,) and `terminated` (n,) are by row; an episode is cut unless its last row terminated.
    r_min of a row is the smaller of `worst` and the rewards that its sum has, so a return depends on
    the rewards after it alone. With γ = 1 nothing bounds negative rewards: -inf, not known.

    Doubles the window in every pass: sums over 1, 2, 4, ... steps.
    """
    totals, rows = rewards.double(), torch.arange(len(rewards))
    lowest = totals.clamp_max(min(worst or 0.0, 0.0))
    longest, step = int((last - rows).max()) + 1 if len(rows) else 0, 1
    while step < longest:
        later = rows + step
        inside = later <= last
        later = later.clamp_max(len(rows) - 1)
        totals = torch.where(inside, totals + gamma**step * totals[later], totals)
        lowest = torch.where(inside, torch.minimum(lowest, lowest[later]), lowest)
        step *= 2
    if worst is None:
        return totals.float()
    for_ever = lowest / (1 - gamma) if gamma < 1 else torch.where(lowest < 0, -torch.inf, 0.0)
    missing = torch.pow(gamma, (last - rows + 1).double()) * for_ever
    return torch.where(terminated[last], totals, totals + missing).float()


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
        worst: float | None = None,
    ) -> None:
        self.capacity, self.gamma, self.worst = capacity, gamma, worst
        self.rewards_at = rewards_at
        self.returns = torch.full((capacity,), -torch.inf)  # by position
        # rows of each running episode; more than the buffer holds are of no use
        self._running: list[deque[int]] = [deque(maxlen=capacity) for _ in range(num_envs)]

    def add(self, numbers: range, terminated: Tensor, truncated: Tensor) -> None:
        """Add one new row of each environment, in order; all of length num_envs."""
        self.returns[torch.tensor(numbers) % self.capacity] = -torch.inf
        for env, number in enumerate(numbers):
            self._running[env].append(number)
        for env in (terminated | truncated).nonzero().flatten().tolist():
            self._end(env, terminated[env], oldest=numbers.stop - self.capacity)

    def _end(self, env: int, terminated: Tensor, oldest: int) -> None:
        stored = [number for number in self._running[env] if number >= oldest]
        rows = torch.tensor(stored) % self.capacity
        last = torch.full_like(rows, len(rows) - 1)
        self.returns[rows] = self._returns_of(rows, last, terminated.expand(len(rows)))
        self._running[env].clear()

    def _returns_of(self, rows: Tensor, last: Tensor, terminated: Tensor) -> Tensor:
        rewards = self.rewards_at(rows)
        return returns_to_go(rewards, last, self.gamma, terminated, self.worst)

    def forget_running(self, env: int) -> None:
        """Begin an episode with this environment's next row; the rows before it get no returns."""
        self._running[env].clear()

    def rebuild(
        self,
        numbers: range,
        env_ids: Tensor,
        first: Tensor,
        terminated: Tensor,
        truncated: Tensor,
    ) -> None:
        """Compute again all that is tracked, from the stored rows in the order of writing.

        A return depends on the rewards after it alone, so it comes out the same to the bit.
        """
        by_env = torch.sort(env_ids, stable=True).indices
        env, begins = env_ids[by_env], first[by_env].clone()
        ended = (terminated | truncated)[by_env]
        begins[:1] = True
        begins[1:] |= env[1:] != env[:-1]
        starts = begins.nonzero().flatten()
        stops = torch.cat([starts[1:], torch.tensor([len(env)])])
        episode = begins.cumsum(0) - 1
        last = (stops - 1)[episode]
        rows = (numbers.start + by_env) % self.capacity
        returns = self._returns_of(rows, last, terminated[by_env])
        self.returns.fill_(-torch.inf)
        self.returns[rows] = torch.where(ended[last], returns, -torch.inf)
        for index, running in enumerate(self._running):
            running.clear()
            newest = (env == index).nonzero().flatten()[-1:]
            if len(newest) and not ended[newest]:
                first_row = int(starts[episode[newest]])
                running.extend((numbers.start + by_env[first_row : int(newest) + 1]).tolist())
