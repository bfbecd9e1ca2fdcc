"""Columns of a packed row: one transition as float32 numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property


@dataclass(frozen=True)
class RowLayout:
    """obs | actions | next_obs | reward | termination | truncation [| next_action | valid] [| achieved].

    Observation and action are neighbours so that a critic's input is a view of the row. With
    `goal_dim` both observations end with the desired and the achieved goal. Without
    `sees_achieved_goal` they end with the desired one, and the row with the goal achieved in next_obs.
    """

    obs_dim: int
    action_width: int
    discrete: bool = False
    has_next_actions: bool = False
    goal_dim: int = 0
    sees_achieved_goal: bool = True

    @cached_property
    def obs(self) -> slice:
        return slice(0, self.obs_dim)

    @cached_property
    def actions(self) -> slice:
        return slice(self.obs_dim, self.obs_dim + self.action_width)

    @cached_property
    def next_obs(self) -> slice:
        return slice(self.actions.stop, self.actions.stop + self.obs_dim)

    @cached_property
    def reward(self) -> int:
        return self.next_obs.stop

    @cached_property
    def termination(self) -> int:
        return self.reward + 1

    @cached_property
    def truncation(self) -> int:
        return self.reward + 2

    @cached_property
    def next_actions(self) -> slice:
        """Meaningful only with `has_next_actions`."""
        return slice(self.reward + 3, self.reward + 3 + self.action_width)

    @cached_property
    def next_action_valid(self) -> int:
        return self.next_actions.stop

    @cached_property
    def goal(self) -> slice:
        """The desired goal within obs."""
        return self._goal_within(self.obs)

    @cached_property
    def next_goal(self) -> slice:
        """The desired goal within next_obs."""
        return self._goal_within(self.next_obs)

    def _goal_within(self, obs: slice) -> slice:
        stop = obs.stop - self.goal_dim * self.sees_achieved_goal
        return slice(stop - self.goal_dim, stop)

    @cached_property
    def achieved(self) -> slice:
        """The goal that was achieved in next_obs."""
        if self.sees_achieved_goal:
            return slice(self.next_obs.stop - self.goal_dim, self.next_obs.stop)
        return self.achieved_apart

    @cached_property
    def achieved_apart(self) -> slice:
        """Columns of the achieved goal after all others; none if observations have it."""
        start = self.next_action_valid + 1 if self.has_next_actions else self.reward + 3
        return slice(start, start + self.goal_dim * (not self.sees_achieved_goal))

    @cached_property
    def width(self) -> int:
        return self.achieved_apart.stop

    @cached_property
    def sizes(self) -> list[int]:
        """Widths of the column blocks, for one `Tensor.split` of a gathered batch."""
        sizes = [self.obs_dim, self.action_width, self.obs_dim, 3]
        if self.has_next_actions:
            sizes += [self.action_width, 1]
        apart = self.width - self.achieved_apart.start
        return [*sizes, apart] if apart else sizes

    def with_next_actions(self, carried: bool = True) -> RowLayout:
        return replace(self, has_next_actions=carried)
