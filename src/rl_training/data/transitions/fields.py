"""The reading half of a dataset: fields, episodes and facts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from rl_training.config import DatasetError
from rl_training.data.packing.layout import RowLayout
from rl_training.data.packing.pack import Boundaries
from rl_training.data.packing.source import piece_rows
from rl_training.data.transitions.episodes import Episodes
from rl_training.data.transitions.normalizer import mean_and_std
from rl_training.data.transitions.summary import summarize
from rl_training.data.transitions.view import RowView


class DatasetFields:
    """Read-only access to a view of packed rows."""

    _view: RowView

    def __len__(self) -> int:
        return len(self._view)

    def __repr__(self) -> str:
        actions = (
            f"{self.num_actions} actions" if self.discrete else f"actions ({self.action_width},)"
        )
        episodes = "" if self._view.ends is None else f" in {len(self._view.ends):,} episodes"
        return (
            f"TransitionDataset({len(self):,} transitions{episodes}, "
            f"observations ({self.obs_dim},), {actions}, from {self.source})"
        )

    # -- fields -------------------------------------------------------------------------------

    @property
    def layout(self) -> RowLayout:
        return self._view.layout

    @property
    def obs(self) -> Tensor:
        return self._view.column(self.layout.obs)

    @property
    def actions(self) -> Tensor:
        return self._as_actions(self._view.column(self.layout.actions))

    @property
    def rewards(self) -> Tensor:
        return self._view.column(self.layout.reward)

    @property
    def next_obs(self) -> Tensor:
        return self._view.column(self.layout.next_obs)

    @property
    def terminations(self) -> Tensor:
        return self._view.column(self.layout.termination)

    @property
    def truncations(self) -> Tensor:
        values = self._view.column(self.layout.truncation)
        cuts = self._view.cuts
        return values if len(cuts) == 0 else values.index_fill(0, cuts, 1.0)

    @property
    def next_actions(self) -> Tensor | None:
        if not self.layout.has_next_actions:
            return None
        return self._as_actions(self._view.column(self.layout.next_actions))

    @property
    def next_action_valid(self) -> Tensor | None:
        if not self.layout.has_next_actions:
            return None
        return self._view.column(self.layout.next_action_valid)

    @property
    def behavior_log_probs(self) -> Tensor | None:
        """Log-probabilities of the logged actions under the policy that logged them, if the log has them.

        Densities of continuous actions are in the units of the log, whatever scaling this view has.
        """
        return self._view.behavior_log_probs()

    def _as_actions(self, values: Tensor) -> Tensor:
        return values.squeeze(1).long() if self.discrete else values

    def pieces(self) -> Iterator[Tensor]:
        """All packed rows in order, transforms applied, a few megabytes at a time."""
        size = piece_rows(self.layout.width)
        cuts = self._view.cuts
        for start in range(0, len(self), size):
            rows = self._view.rows_at(self._view.storage_rows(start, start + size))
            inside = cuts[(cuts >= start) & (cuts < start + size)] - start
            rows[inside, self.layout.truncation] = 1
            yield rows

    def column(self, columns: int | slice, start: int, stop: int) -> Tensor:
        """Rows start to stop of one field; columns as the layout names them."""
        values = self._view.column(columns, start, stop)
        if columns == self.layout.truncation:
            cuts = self._view.cuts
            values = values.index_fill(0, cuts[(cuts >= start) & (cuts < stop)] - start, 1.0)
        return values

    def column_pieces(self, columns: int | slice) -> Iterator[Tensor]:
        """One field of all rows in order, a few megabytes at a time."""
        size = piece_rows(self.layout.width)
        for start in range(0, len(self), size):
            yield self.column(columns, start, start + size)

    # -- facts --------------------------------------------------------------------------------

    @property
    def obs_dim(self) -> int:
        return self.layout.obs_dim

    @property
    def action_width(self) -> int:
        """Columns that one action takes; 1 when discrete."""
        return self.layout.action_width

    @property
    def discrete(self) -> bool:
        return self.layout.discrete

    @property
    def action_kind(self) -> str:
        return "discrete" if self.discrete else "continuous"

    @property
    def num_actions(self) -> int | None:
        """Number of discrete choices (largest action seen + 1); None when continuous."""
        return self._view.packed.num_actions

    @property
    def first_action(self) -> int | None:
        """Number of the first choice in the original log; None when nobody has declared it."""
        return self._view.packed.first_action

    @property
    def boundaries(self) -> Boundaries:
        """Origin of the episode ends: given, derived from breaks between rows, or unknown."""
        return self._view.packed.boundaries

    @property
    def notes(self) -> tuple[str, ...]:
        """Decisions made while loading, in words."""
        return self._view.packed.notes

    @property
    def source(self) -> str:
        """Name of the file or dataset that the rows came from."""
        return self._view.packed.source

    @property
    def has_reward_transforms(self) -> bool:
        """True if rewards differ from those in the storage."""
        return bool(self._view.reward_transforms)

    @property
    def in_memory(self) -> bool:
        return self._view.packed.in_memory

    @cached_property
    def sha256(self) -> str:
        """Digest of the stored rows that this view shows, before transforms."""
        digest = hashlib.sha256()
        size = piece_rows(self._view.packed.layout.width)
        for start in range(0, len(self), size):
            rows = self._view.packed.rows[self._view.storage_rows(start, start + size)]
            digest.update(rows.numpy().tobytes())
        return digest.hexdigest()

    # -- episodes -----------------------------------------------------------------------------

    @cached_property
    def episodes(self) -> Episodes:
        """Starts, lengths and returns; an error when boundaries are unknown."""
        ends = self._view.ends
        if ends is None:
            raise DatasetError(
                f"{self.source}: episode boundaries are unknown. "
                "Supply 'truncations' or 'episode_ids', with the rows in order."
            )
        return Episodes.from_ends(ends, self.rewards, self.terminations, self.truncations)

    @property
    def episode_starts(self) -> npt.NDArray[np.int64]:
        return self.episodes.starts

    @property
    def episode_lengths(self) -> npt.NDArray[np.int64]:
        return self.episodes.lengths

    @property
    def episode_returns(self) -> npt.NDArray[np.float64]:
        """Undiscounted sums of the rewards that `sample` would give."""
        return self.episodes.returns

    def return_range_scale(self) -> float:
        """1000 / (best return - worst return), the reward scale of IQL."""
        returns = self.episodes.returns
        spread = float(returns.max() - returns.min())
        if spread == 0:
            raise DatasetError(
                f"{self.source}: every episode has the same return {returns[0]:g}, "
                "so rewards cannot be normalised by the range of returns"
            )
        return 1000 / spread

    def observation_statistics(self) -> tuple[Tensor, Tensor]:
        """Mean and deviation of the observations, as `mean_and_std` has them."""
        return mean_and_std(self.column_pieces(self.layout.obs))

    def describe(self) -> dict[str, Any]:
        """A summary of plain numbers and texts, ready for JSON."""
        return summarize(self)
