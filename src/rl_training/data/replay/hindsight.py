"""Replay in hindsight: a transition as if the goal had been one that was reached.

Andrychowicz et al. 2017. What a transition is relabelled with is decided when it is drawn, so that
one transition serves many goals and an episode that is still running serves as far as it has come.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from rl_training.config import CheckpointError
from rl_training.data.packing.layout import RowLayout
from rl_training.data.replay_buffer import ReplayBuffer, Rows
from rl_training.data.transitions.batch import Batch
from rl_training.data.transitions.batch_memory import BatchMemory
from rl_training.spec import flat_goals

# rewards (n,) of achieved goals and desired goals, both (n, goal_dim)
RewardFunction = Callable[[NDArray[np.float32], NDArray[np.float32]], NDArray[Any]]
Strategy = Literal["future", "final", "episode"]


class HERReplayBuffer(ReplayBuffer):
    """A replay that gives a share `her_ratio` of what is drawn another goal and its reward.

    Observations are `observation` and `desired_goal` side by side, together `obs_dim` wide. The new
    goal is the one achieved after a step of the same episode: this one or a later one (`future`),
    the last one so far (`final`), or any (`episode`). Only steps that are still held are chosen.
    Terminations stay as they were.

    Every environment writes a row in every step, in order: row = step x num_envs + environment, and
    that is how the rows of an episode are found without looking for them.
    """

    def __init__(
        self,
        capacity: int,
        obs_dim: int,
        action_width: int,
        *,
        goal_dim: int,
        compute_reward: RewardFunction | None = None,
        her_ratio: float = 0.8,
        goal_selection_strategy: Strategy = "future",
        discrete: bool = False,
        num_envs: int = 1,
    ) -> None:
        if not 0 < goal_dim < obs_dim:
            raise ValueError(f"observations of {obs_dim} numbers cannot hold a goal of {goal_dim}")
        if goal_selection_strategy not in ("future", "final", "episode"):
            raise ValueError(f"unknown goal_selection_strategy {goal_selection_strategy!r}")
        if her_ratio > 0 and compute_reward is None:
            raise ValueError("new goals need compute_reward; her_ratio 0 relabels nothing")
        self.num_envs, self.steps = num_envs, capacity // num_envs
        layout = RowLayout(obs_dim, action_width, discrete, goal_dim=goal_dim)
        super().__init__(
            self.steps * num_envs, obs_dim, action_width, num_envs=num_envs, layout=layout
        )
        self.compute_reward = compute_reward
        self.her_ratio = her_ratio
        self.goal_selection_strategy = goal_selection_strategy
        self._step = 0  # steps written so far, those that are gone included
        self._episodes = torch.empty(self.capacity, dtype=torch.int64)  # each row's, by number
        self._running = np.full(num_envs, -1)  # number of each environment's newest episode
        # The step in which an episode began. No more episodes than steps are held, so that numbers
        # modulo `steps` do not meet.
        self._begins = torch.zeros(self.steps, num_envs, dtype=torch.int64)

    # -- writing ------------------------------------------------------------------------------

    def add_batch(
        self,
        obs: ArrayLike | Mapping[str, ArrayLike],
        actions: ArrayLike,
        rewards: ArrayLike,
        next_obs: ArrayLike | Mapping[str, ArrayLike],
        terminations: ArrayLike,
        truncations: ArrayLike,
        env_ids: NDArray[np.int64] | None = None,
    ) -> None:
        """One transition of each environment; observations as goal environments give them."""
        if not isinstance(obs, Mapping) or not isinstance(next_obs, Mapping):
            raise TypeError("observations are mappings: observation, desired_goal, achieved_goal")
        rows = self._pack(
            flat_goals(obs), actions, rewards, flat_goals(next_obs), terminations, truncations
        )
        rows[:, self.layout.achieved] = next_obs["achieved_goal"]
        self.add_rows(rows, np.arange(len(rows)) if env_ids is None else env_ids)

    def add_rows(self, rows: Rows, env_ids: NDArray[np.int64]) -> None:
        """Packed rows, one for each environment, in order."""
        if not np.array_equal(env_ids, np.arange(self.num_envs)):
            raise ValueError(
                f"a step is one row of each of {self.num_envs} environments, in order; got rows of "
                f"{env_ids.tolist()} (vector environments must reset in the same step)"
            )
        new = np.flatnonzero(self._latest < 0)
        self._running[new] += 1
        self._begins[self._running[new] % self.steps, new] = self._step
        start = self._position
        super().add_rows(rows, env_ids)
        self._episodes[start : start + self.num_envs] = torch.from_numpy(self._running)
        self._step += 1

    # -- reading ------------------------------------------------------------------------------

    def sample(
        self,
        batch_size: int,
        *,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        memory: BatchMemory | None = None,
    ) -> Batch:
        """A batch drawn uniformly with replacement, in which each row may have a new goal."""
        where = self.draw(batch_size, generator)
        rows = self.rows_at(where)
        chosen = (torch.rand(batch_size, generator=generator) < self.her_ratio).nonzero().flatten()
        if len(chosen):
            self.relabel(rows, chosen, self.choose(where[chosen], generator))
        return Batch.from_rows(rows if device is None else rows.to(device), self.layout)

    def choose(self, where: Tensor, generator: torch.Generator | None) -> Tensor:
        """For each of these rows, one of its episode to take the achieved goal from."""
        slots, env = where // self.num_envs, where % self.num_envs
        newest = self._step - 1
        step = newest - (newest - slots) % self.steps  # when the row was written
        first, last = self._reach(self._episodes[where], env)
        if self.goal_selection_strategy == "final":
            return last % self.steps * self.num_envs + env
        if self.goal_selection_strategy == "future":
            first = step
        spread = torch.rand(len(where), generator=generator, dtype=torch.float64)
        chosen = first + (spread * (last - first + 1)).long()
        return torch.minimum(chosen, last) % self.steps * self.num_envs + env  # spread may round up

    def _reach(self, episodes: Tensor, env: Tensor) -> tuple[Tensor, Tensor]:
        """First and last step of these episodes that are still held, and already there."""
        oldest = max(0, self._step - self.steps)
        first = self._begins[episodes % self.steps, env].clamp_min(oldest)
        following = self._begins[(episodes + 1) % self.steps, env]
        running = episodes == torch.from_numpy(self._running)[env]
        return first, torch.where(running, self._step, following) - 1

    def relabel(self, rows: Tensor, which: Tensor, sources: Tensor) -> None:
        """Give some of the gathered rows, in place, the goals achieved in the `sources`."""
        assert self.compute_reward is not None
        layout = self.layout
        goals = self._rows[:, layout.achieved].index_select(0, sources)
        achieved = rows[:, layout.achieved].index_select(0, which)
        rewards = np.asarray(self.compute_reward(achieved.numpy(), goals.numpy()), np.float32)
        rows[which, layout.goal] = goals
        rows[which, layout.next_goal] = goals
        rows[which, layout.reward] = torch.from_numpy(rewards)

    # -- checkpoints --------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Tensor]:
        known = min(self.steps, int(self._running.max()) + 1)
        return {
            **super().state_dict(),
            "step": torch.tensor(self._step),
            "episodes": self._episodes[: self._size],
            "running": torch.from_numpy(self._running.copy()),
            "begins": self._begins[:known],
        }

    def load_state_dict(self, tensors: dict[str, Tensor]) -> None:
        step, running = int(tensors["step"]), tensors["running"].numpy().copy()
        if (min(step, self.steps) * self.num_envs, self.num_envs) != (
            len(tensors["rows"]),
            len(running),
        ):
            raise CheckpointError(
                f"the saved replay has {len(tensors['rows'])} rows of {len(running)} environments, "
                f"which are not {self.capacity} of {self.num_envs}"
            )
        super().load_state_dict(tensors)
        self._step, self._running = step, running
        self._episodes[: self._size] = tensors["episodes"]
        self._begins[: len(tensors["begins"])] = tensors["begins"]
