"""Views: a choice of packed rows, and the transforms applied when they are gathered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_training.data.packing.flags import Ends
from rl_training.data.packing.layout import RowLayout
from rl_training.data.packing.pack import PackedRows


class RewardTransform(NamedTuple):
    """Scale, then shift, then clip: in float64, rounded once, as environments' wrappers do."""

    scale: float = 1.0
    shift: float = 0.0
    clip_min: float | None = None
    clip_max: float | None = None

    def apply_(self, rewards: Tensor) -> None:
        """Transform rewards in place."""
        values = rewards.double()
        if self.scale != 1:
            values.mul_(self.scale)
        if self.shift != 0:
            values.add_(self.shift)
        if self.clip_min is not None or self.clip_max is not None:
            values.clamp_(self.clip_min, self.clip_max)
        rewards.copy_(values)


class ColumnStep(NamedTuple):
    """(x - center) * scale, then limits; one float32 entry per column, as in acting, bit for bit."""

    center: Tensor
    scale: Tensor
    limits: tuple[Tensor, Tensor] | None = None

    def apply_(self, values: Tensor) -> None:
        """Transform columns in place."""
        values.sub_(self.center).mul_(self.scale)
        if self.limits is not None:
            values.clamp_(*self.limits)

    @staticmethod
    def identity(width: int) -> ColumnStep:
        return ColumnStep(torch.zeros(width), torch.ones(width))


class Shares(NamedTuple):
    """Mixture: rows bounds[i] to bounds[i + 1] of the storage make weights[i] of a batch."""

    bounds: Tensor  # (parts + 1,) int64
    weights: Tensor  # (parts,) float64


@dataclass(frozen=True, eq=False)
class RowView:
    """A choice of rows and the transforms of their columns; nothing here copies the storage."""

    packed: PackedRows
    index: Tensor | None = None  # (n,) rows of the storage, rising; None shows all
    obs_steps: tuple[ColumnStep, ...] = ()  # one after the other, as later ones see the former
    action_steps: tuple[ColumnStep, ...] = ()
    wrapper_rewards: tuple[RewardTransform, ...] = ()  # which collected rows come with
    reward_transforms: tuple[RewardTransform, ...] = ()  # after those
    has_next: Tensor | None = None  # (N,) bool: the following row's action is the next action
    shares: Shares | None = None
    returns: Tensor | None = None  # (N,) discounted returns to go of the rows shown

    def __len__(self) -> int:
        return self.packed.rows.shape[0] if self.index is None else self.index.shape[0]

    @cached_property
    def layout(self) -> RowLayout:
        """Layout of the gathered rows; they carry next actions even if read from neighbours."""
        layout = self.packed.layout
        return layout if self.has_next is None else layout.with_next_actions()

    @cached_property
    def ends(self) -> Ends | None:
        """Positions, in this view, of the last row of every episode."""
        ends = self.packed.ends
        if ends is None or self.index is None:
            return ends
        episode = np.searchsorted(ends, self.index.numpy())
        return np.append(np.flatnonzero(np.diff(episode)), len(self) - 1).astype(np.int64)

    @cached_property
    def cuts(self) -> Tensor:
        """Positions that are the last of an episode because its truncated last row is left out."""
        ends = self.ends
        if ends is None or self.packed.ends is None or self.index is None:
            return torch.empty(0, dtype=torch.int64)
        shown = self.index.numpy()[ends]
        stored = self.packed.ends[np.searchsorted(self.packed.ends, shown)]
        truncated = self.packed.rows[torch.from_numpy(stored), self.packed.layout.truncation] > 0
        return torch.from_numpy(ends)[truncated & torch.from_numpy(stored != shown)]

    def draw(self, count: int, generator: torch.Generator | None) -> Tensor:
        """Storage rows drawn uniformly, or by the shares of a mixture."""
        if self._share_ranges is None:
            positions = torch.randint(len(self), (count,), generator=generator)
        else:
            starts, lengths, weights = self._share_ranges
            part = torch.multinomial(weights, count, replacement=True, generator=generator)
            inside = torch.rand(count, generator=generator, dtype=torch.float64)
            size = lengths.index_select(0, part)
            # The product can round up to the size itself.
            within = (inside * size).long().minimum(size - 1)
            positions = starts.index_select(0, part) + within
        return positions if self.index is None else self.index.index_select(0, positions)

    @cached_property
    def _share_ranges(self) -> tuple[Tensor, Tensor, Tensor] | None:
        if self.shares is None:
            return None
        bounds, weights = self.shares
        if self.index is not None:
            bounds = torch.searchsorted(self.index, bounds)
        lengths = bounds[1:] - bounds[:-1]
        used = lengths > 0  # a subset may have left a part without rows
        return bounds[:-1][used], lengths[used], weights[used]

    def part_sizes(self) -> tuple[Tensor, Tensor]:
        """Rows and weight of each part of the mixture, in order."""
        if self._share_ranges is None:
            return torch.tensor([len(self)]), torch.ones(1, dtype=torch.float64)
        _, lengths, weights = self._share_ranges
        return lengths, weights

    def storage_rows(self, start: int, stop: int) -> Tensor:
        """Storage rows of positions start to stop of this view."""
        if self.index is None:
            return torch.arange(start, min(stop, len(self)))
        return self.index[start:stop]

    def rows_at(self, stored: Tensor) -> Tensor:
        """Gather packed rows by their storage rows, with every transform applied."""
        rows = self.packed.rows.index_select(0, stored)
        if self.has_next is not None:
            valid = self.has_next.index_select(0, stored)
            actions = self.packed.rows[:, self.layout.actions]
            rows = torch.cat(
                [rows, actions.index_select(0, stored + valid), valid.float().unsqueeze(1)], 1
            )
        self.transform_(rows)
        return rows

    @cached_property
    def is_plain(self) -> bool:
        """True if a batch is nothing but rows, all equally likely."""
        if self.layout.discrete and self.layout.has_next_actions:
            return False
        return self.shares is None and self.returns is None

    def write_rows(self, positions: NDArray[np.int64], out: NDArray[np.float32]) -> None:
        """Gather the rows at these positions of this view into existing memory."""
        stored, index, has_next = self._arrays
        chosen = positions if index is None else index.take(positions)
        if has_next is None:
            # nothing is out of bounds; in mode "raise" numpy would copy through a buffer
            stored.take(chosen, 0, out, "clip")
        else:
            valid = has_next.take(chosen)
            out[:, : stored.shape[1]] = stored.take(chosen, 0)
            following = stored.take(chosen + valid, 0)
            out[:, self.layout.next_actions] = following[:, self.layout.actions]
            out[:, self.layout.next_action_valid] = valid
        self.transform_(torch.from_numpy(out))

    @cached_property
    def _arrays(self) -> tuple[NDArray[np.float32], NDArray[np.int64] | None, Any]:
        index = None if self.index is None else self.index.numpy()
        has_next = None if self.has_next is None else self.has_next.numpy()
        return self.packed.rows.numpy(), index, has_next

    def transform_(self, rows: Tensor) -> None:
        """Apply the transforms of this view to rows of its layout, in place."""
        for step, limits in self._passes:
            step.apply_(rows)
            if limits is not None:
                rows[:, self.layout.actions].clamp_(*limits)
                if self.layout.has_next_actions:
                    rows[:, self.layout.next_actions].clamp_(*limits)
        for transform in (*self.wrapper_rewards, *self.reward_transforms):
            transform.apply_(rows[:, self.layout.reward])

    @cached_property
    def _passes(self) -> list[tuple[ColumnStep, tuple[Tensor, Tensor] | None]]:
        """Steps of observations and actions side by side in whole rows, and limits of the actions."""
        layout, passes = self.layout, []
        for obs, action in zip_longest(self.obs_steps, self.action_steps):
            whole = ColumnStep.identity(layout.width)
            fields = [(obs, layout.obs), (obs, layout.next_obs), (action, layout.actions)]
            if layout.has_next_actions:
                fields.append((action, layout.next_actions))
            for step, columns in fields:
                if step is not None:
                    whole.center[columns], whole.scale[columns] = step.center, step.scale
            passes.append((whole, None if action is None else action.limits))
        return passes

    def column(self, columns: int | slice, start: int = 0, stop: int | None = None) -> Tensor:
        """One field of rows start to stop, as `rows_at` would give it; not copied if it can be."""
        if self.has_next is not None and columns in (
            self.layout.next_actions,
            self.layout.next_action_valid,
        ):
            return self.rows_at(self.storage_rows(start, len(self) if stop is None else stop))[
                :, columns
            ]
        if self.index is None:
            values = self.packed.rows[start:stop, columns]
        else:
            values = self.packed.rows[:, columns][self.index[start:stop]]
        if steps := self._steps_of(columns):
            values = values.clone()
            for step in steps:
                step.apply_(values)
        return values

    def behavior_log_probs(self, start: int = 0, stop: int | None = None) -> Tensor | None:
        """Log-probabilities of the logged actions of rows start to stop, if the log has them."""
        values = self.packed.behavior_log_probs
        if values is None:
            return None
        return values[start:stop] if self.index is None else values[self.index[start:stop]]

    def _steps_of(self, columns: int | slice) -> Sequence[ColumnStep | RewardTransform]:
        if columns in (self.layout.obs, self.layout.next_obs):
            return self.obs_steps
        if columns in (self.layout.actions, self.layout.next_actions):
            return self.action_steps
        if columns == self.layout.reward:
            return (*self.wrapper_rewards, *self.reward_transforms)
        return ()
