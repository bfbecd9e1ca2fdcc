"""Hindsight experience replay: transitions relabelled with goals that were achieved.

Andrychowicz et al. 2017. The new goal is chosen when a transition is drawn, so that one transition
serves many goals, and a running episode serves with the steps it has so far.
"""

from __future__ import annotations

import logging
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
from rl_training.data.transitions.saved_replay import from_ring_order
from rl_training.spec import flat_goals

log = logging.getLogger("rl_training")

# values (n,) of achieved goals and desired goals, both (n, goal_dim)
GoalFunction = Callable[[NDArray[np.float32], NDArray[np.float32]], NDArray[Any]]
Strategy = Literal["future", "final", "episode"]


class HERReplayBuffer(ReplayBuffer):
    """A replay buffer that relabels a share `her_ratio` of every batch with another goal.

    Observations are `observation`, `desired_goal` and `achieved_goal` side by side, together
    `obs_dim` wide; without `sees_achieved_goal` they lack the last. The new goal is the one achieved
    after a step of the same episode: this one or a later one (`future`), the last one so far
    (`final`), or any (`episode`). Only steps that are still stored are chosen. It takes the place of
    the desired goal; achieved goals stay.

    Terminations become those of the new goal with `compute_terminated`; one that the old goal does
    not explain stays. Without it all of them stay. Truncations have other reasons than the goal.

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
        compute_reward: GoalFunction | None = None,
        compute_terminated: GoalFunction | None = None,
        her_ratio: float = 0.8,
        goal_selection_strategy: Strategy = "future",
        discrete: bool = False,
        num_envs: int = 1,
        sees_achieved_goal: bool = True,
    ) -> None:
        if not 0 < goal_dim * (1 + sees_achieved_goal) < obs_dim:
            raise ValueError(f"observations of {obs_dim} numbers cannot hold a goal of {goal_dim}")
        if goal_selection_strategy not in ("future", "final", "episode"):
            raise ValueError(f"unknown goal_selection_strategy {goal_selection_strategy!r}")
        if her_ratio > 0 and compute_reward is None:
            raise ValueError("new goals need compute_reward; her_ratio 0 relabels nothing")
        self.num_envs, self.steps = num_envs, capacity // num_envs
        layout = RowLayout(
            obs_dim,
            action_width,
            discrete,
            goal_dim=goal_dim,
            sees_achieved_goal=sees_achieved_goal,
        )
        super().__init__(
            self.steps * num_envs, obs_dim, action_width, num_envs=num_envs, layout=layout
        )
        self.compute_reward, self.compute_terminated = compute_reward, compute_terminated
        self.her_ratio = her_ratio
        self.goal_selection_strategy = goal_selection_strategy
        self._episodes = torch.empty(self.capacity, dtype=torch.int64)  # each row's, by number
        self._running = np.full(num_envs, -1)  # number of each environment's newest episode
        # The step in which an episode began. No more episodes than steps are stored, so that numbers
        # modulo `steps` do not collide.
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
        before, after = (
            flat_goals(view, achieved=self.layout.sees_achieved_goal) for view in (obs, next_obs)
        )
        rows = self._pack(before, actions, rewards, after, terminations, truncations)
        rows[:, self.layout.achieved] = next_obs["achieved_goal"]
        self.add_rows(rows, np.arange(len(rows)) if env_ids is None else env_ids)

    def add_rows(self, rows: Rows, env_ids: NDArray[np.int64]) -> None:
        """Packed rows, one for each environment, in order."""
        if not np.array_equal(env_ids, np.arange(self.num_envs)):
            raise ValueError(
                f"a step is one row of each of {self.num_envs} environments, in order; got rows of "
                f"{env_ids.tolist()} (vector environments must reset in the same step)"
            )
        if not self._total:
            self._compare_rewards(rows)
        new = np.flatnonzero(self._latest < 0)
        self._running[new] += 1
        self._begins[self._running[new] % self.steps, new] = self._step
        start = self._position
        super().add_rows(rows, env_ids)
        self._episodes[start : start + self.num_envs] = torch.from_numpy(self._running)

    def _compare_rewards(self, rows: Rows) -> None:
        """Warn if the rewards that are collected are not those of `compute_reward`."""
        if self.compute_reward is None or not self.her_ratio:
            return
        layout, given = self.layout, rows[:, self.layout.reward]
        computed = self.compute_reward(rows[:, layout.achieved], rows[:, layout.goal])
        differ = np.flatnonzero(~np.isclose(given, computed, rtol=1e-3, atol=1e-3))
        if len(differ):
            log.warning(
                "the first step gives a reward of %g where compute_reward gives %g for the same goals: "
                "rows with new goals have rewards of another kind. Make compute_reward what step "
                "returns, with all wrappers of your own",
                given[differ[0]], computed[differ[0]],
            )  # fmt: skip

    @property
    def _step(self) -> int:
        """Steps written so far, overwritten ones included."""
        return self._total // self.num_envs

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
        positions = self.draw(batch_size, generator)
        rows = self.rows_at(positions)
        chosen = (torch.rand(batch_size, generator=generator) < self.her_ratio).nonzero().flatten()
        if len(chosen):
            self.relabel(rows, chosen, self.choose(positions[chosen], generator))
        return Batch.from_rows(rows if device is None else rows.to(device), self.layout)

    def choose(self, positions: Tensor, generator: torch.Generator | None) -> Tensor:
        """Choose a row of the same episode for each row, to take the achieved goal from."""
        slots, env = positions // self.num_envs, positions % self.num_envs
        newest = self._step - 1
        step = newest - (newest - slots) % self.steps  # when the row was written
        first, last = self._reach(self._episodes[positions], env)
        if self.goal_selection_strategy == "final":
            return last % self.steps * self.num_envs + env
        if self.goal_selection_strategy == "future":
            first = step
        spread = torch.rand(len(positions), generator=generator, dtype=torch.float64)
        chosen = first + (spread * (last - first + 1)).long()
        return torch.minimum(chosen, last) % self.steps * self.num_envs + env  # spread may round up

    def _reach(self, episodes: Tensor, env: Tensor) -> tuple[Tensor, Tensor]:
        """First step of these episodes that is still stored, and the last one so far."""
        oldest = max(0, self._step - self.steps)
        first = self._begins[episodes % self.steps, env].clamp_min(oldest)
        following = self._begins[(episodes + 1) % self.steps, env]
        running = episodes == torch.from_numpy(self._running)[env]
        return first, torch.where(running, self._step, following) - 1

    def relabel(self, rows: Tensor, which: Tensor, sources: Tensor) -> None:
        """Replace, in place, the goals of some gathered rows by those achieved in `sources`."""
        assert self.compute_reward is not None
        layout = self.layout
        goals = self._rows[:, layout.achieved].index_select(0, sources)
        achieved = rows[:, layout.achieved].index_select(0, which)
        rewards = np.asarray(self.compute_reward(achieved.numpy(), goals.numpy()), np.float32)
        if self.compute_terminated is not None:
            self._end_anew(rows, which, achieved, goals, self.compute_terminated)
        rows[which, layout.goal] = goals
        rows[which, layout.next_goal] = goals
        rows[which, layout.reward] = torch.from_numpy(rewards)

    def _end_anew(
        self,
        rows: Tensor,
        which: Tensor,
        achieved: Tensor,
        goals: Tensor,
        terminated: GoalFunction,
    ) -> None:
        """Write the terminations of new goals, while the rows still have their old ones."""
        layout = self.layout
        ends = torch.from_numpy(np.array(terminated(achieved.numpy(), goals.numpy()), np.float32))
        ended = rows[which, layout.termination].nonzero().flatten()
        if len(ended):
            old = rows[which[ended], layout.goal].numpy()
            explained = np.asarray(terminated(achieved[ended].numpy(), old), np.bool_)
            ends[ended[torch.from_numpy(~explained)]] = 1.0
        rows[which, layout.termination] = ends
        rows[which, layout.truncation] *= 1 - ends  # a row has at most one of the two

    # -- checkpoints --------------------------------------------------------------------------

    def _columns(self) -> dict[str, Tensor]:
        return {**super()._columns(), "episodes": self._episodes}

    def changing_state(self) -> dict[str, Tensor]:
        return {**super().changing_state(), "running": torch.from_numpy(self._running.copy())}

    def load_state_dict(self, tensors: dict[str, Tensor]) -> None:
        if "position" in tensors:
            tensors = from_ring_order(tensors, self.capacity)
        super().load_state_dict(tensors)
        running = tensors["running"].numpy().copy()
        if self._total % self.num_envs or len(running) != self.num_envs:
            raise CheckpointError(
                f"the saved replay has {self._total} rows of {len(running)} environments, which are "
                f"not whole steps of {self.num_envs}"
            )
        self._running = running
        # episodes that began before the oldest row keep 0, which `_reach` raises to that row
        self._begins.zero_()
        numbers = torch.arange(self.numbers.start, self.numbers.stop)[tensors["first"]]
        episodes = tensors["episodes"][tensors["first"]]
        self._begins[episodes % self.steps, numbers % self.num_envs] = numbers // self.num_envs
