"""A log as off-policy evaluation reads it: episodes, where they begin, and which of them were cut."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from rl_training.config import ConfigError, DatasetError
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.transitions.returns import returns_to_go

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class JudgedLog:
    """Episodes of a log, in the log's own units, and the discount that values are measured with.

    The value of a policy is its discounted return for ever, from the first states of the episodes.
    Termination ends the return. An episode that was cut, by a time limit or where the log stops, would
    have gone on: what is missing is estimated, never taken for zero.
    """

    dataset: TransitionDataset
    gamma: float
    doubt_about_ends: str | None = None  # of what `data check` says about the ends of episodes
    clips_actions: bool = False  # to the policy's bounds, which a few of them are hardly outside of

    def __post_init__(self) -> None:
        if not 0 <= self.gamma <= 1:
            raise ConfigError(f"gamma must be from 0 to 1, got {self.gamma}")
        if self.dataset.boundaries == "unknown":
            raise DatasetError(
                f"{self.dataset.source}: a policy is judged from the first states of episodes, and "
                "episode boundaries are unknown. Supply 'truncations' or 'episode_ids', with the rows "
                "in order."
            )
        if len(self.starts) < 2:
            raise DatasetError(
                f"{self.dataset.source}: one episode says nothing about how sure an estimate is; at "
                "least 2 are needed, and 30 or more make it worth reading"
            )
        if self.gamma == 1 and self.cut.any():
            raise DatasetError(
                f"{self.dataset.source}: {int(self.cut.sum())} of {len(self.cut)} episodes are cut, and "
                "with gamma 1 the rest of them has no bounded value: choose gamma below 1"
            )
        if not np.isfinite(self.returns_to_go).all():
            raise DatasetError(
                f"{self.dataset.source}: rewards reach {np.abs(self.rewards).max():.4g}, and sums of "
                "them are no longer numbers: scale the log"
            )

    @property
    def starts(self) -> NDArray[np.int64]:
        """First row of every episode."""
        return self.dataset.episode_starts

    @property
    def lengths(self) -> NDArray[np.int64]:
        return self.dataset.episode_lengths

    @property
    def last(self) -> NDArray[np.int64]:
        """Last row of every episode."""
        return self.starts + self.lengths - 1

    @cached_property
    def rewards(self) -> Numbers:
        return self.dataset.rewards.numpy().astype(np.float64)

    @cached_property
    def terminated(self) -> NDArray[np.bool_]:
        return self.dataset.terminations.numpy() > 0

    @property
    def cut(self) -> NDArray[np.bool_]:
        """Episodes that did not terminate."""
        return ~self.terminated[self.last]

    @cached_property
    def returns(self) -> Numbers:
        """Discounted return of every episode, up to where it terminated or was cut."""
        return self.returns_to_go[self.starts]

    @cached_property
    def returns_to_go(self) -> Numbers:
        """Discounted return from every row on, up to where its episode terminated or was cut."""
        last = torch.from_numpy(np.repeat(self.last, self.lengths))
        rewards, terminated = torch.from_numpy(self.rewards), torch.from_numpy(self.terminated)
        return returns_to_go(rewards, last, self.gamma, terminated).numpy().astype(np.float64)

    @property
    def rest_discounts(self) -> Numbers:
        """Weight of what is missing of each episode: γ^T where it was cut, 0 where it terminated."""
        return np.where(self.cut, self.gamma ** self.lengths.astype(np.float64), 0.0)

    @property
    def possible_values(self) -> tuple[float, float]:
        """Bounds of any policy's value if no reward lies outside of those in the log."""
        if self.gamma == 1:
            return -np.inf, np.inf
        # a return may end at once, so that 0 is always possible
        lowest, highest = min(self.rewards.min(), 0.0), max(self.rewards.max(), 0.0)
        return lowest / (1 - self.gamma), highest / (1 - self.gamma)

    @cached_property
    def value_scale(self) -> float:
        """Factor that gives returns a deviation of 1, so that critics learn them at any unit."""
        spread = float(self.returns_to_go.std())
        return 1 / spread if spread > 1e-12 * float(np.abs(self.returns_to_go).max()) else 1.0
