"""Transitions in one packed matrix; every dataset is a light view that shares it.

A batch is one `randint` and one `index_select`; its fields are views of the gathered rows.
Subsets, normalisation and reward transforms change the view and never copy the rows, so they
cost nothing on memory-mapped data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_training.config import DatasetError
from rl_training.data.packing.pack import MAX_CHOICES, PackedRows, pack
from rl_training.data.packing.propensities import as_choice_log_probs
from rl_training.data.packing.source import ArraySource
from rl_training.data.saving import save_dataset
from rl_training.data.transitions.argument_checks import (
    Numbers,
    checked_reward,
    ordered,
    per_column,
    require_all,
    require_fraction,
)
from rl_training.data.transitions.batch import Batch
from rl_training.data.transitions.batch_memory import BatchMemory, on_cpu
from rl_training.data.transitions.episodes import Episodes, choose_best, choose_share, rows_of
from rl_training.data.transitions.fields import DatasetFields
from rl_training.data.transitions.returns import returns_to_go
from rl_training.data.transitions.view import ColumnStep, RewardTransform, RowView
from rl_training.spec import unit_scale


class TransitionDataset(DatasetFields):
    """Transitions to sample from. Immutable: `with_*`, `split` and the like give new views.

    Fields read as properties are what `sample` would give, for all rows; `terminations`,
    `truncations` and `next_action_valid` are float32 zeros and ones.
    """

    def __init__(
        self,
        obs: Any,
        actions: Any,
        rewards: Any,
        next_obs: Any,
        terminations: Any,
        truncations: Any = None,
        next_actions: Any = None,
    ) -> None:
        fields = {
            "obs": obs, "actions": actions, "rewards": rewards, "next_obs": next_obs,
            "terminations": terminations, "truncations": truncations,
            "next_actions": next_actions,
        }  # fmt: skip
        self._view = RowView(pack(ArraySource(fields)))

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any], source: str = "data") -> TransitionDataset:
        """Make a dataset of arrays under the names of D4RL, Minari, OGBench, SB3 or ours."""
        return cls.from_packed(pack(ArraySource(fields, source)))

    @classmethod
    def from_packed(cls, packed: PackedRows) -> TransitionDataset:
        return cls.from_view(RowView(packed))

    @classmethod
    def from_view(cls, view: RowView) -> TransitionDataset:
        dataset = cls.__new__(cls)
        dataset._view = view
        return dataset

    def _with(self, **changes: Any) -> TransitionDataset:
        return type(self).from_view(replace(self._view, **changes))

    # -- batches ------------------------------------------------------------------------------

    def sample(
        self,
        batch_size: int,
        *,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        memory: BatchMemory | None = None,
    ) -> Batch:
        """Draw a batch with replacement; the generator is on the CPU, as the data is.

        With `memory` the batch may lie there, and is then valid until the next one.
        """
        if memory is not None and self._view.is_plain and on_cpu(device):
            return memory.draw(
                self._view.layout, batch_size, len(self), generator, self._view.write_rows
            )
        return self._batch(self._view.draw(batch_size, generator), device)

    def gather(self, indices: Any, device: torch.device | str | None = None) -> Batch:
        """Gather the transitions at these positions of this dataset."""
        positions = torch.as_tensor(indices, dtype=torch.int64)
        index = self._view.index
        return self._batch(positions if index is None else index[positions], device)

    def _batch(self, stored: Tensor, device: torch.device | str | None) -> Batch:
        rows, returns = self._view.rows_at(stored), self.returns_at(stored)
        if device is not None:
            rows = rows.to(device, non_blocking=True)
            returns = None if returns is None else returns.to(device, non_blocking=True)
        return Batch.from_rows(rows, self._view.layout, returns=returns)

    def returns_at(self, stored: Tensor) -> Tensor | None:
        """Returns to go of these storage rows, after `with_returns`."""
        returns = self._view.returns
        return None if returns is None else returns.index_select(0, stored)

    def draw(self, count: int, generator: torch.Generator | None) -> Tensor:
        """Draw storage rows for `rows_at`, as `sample` does."""
        return self._view.draw(count, generator)

    def rows_at(self, stored: Tensor) -> Tensor:
        """Gather packed rows in this dataset's `layout`, with every transform applied."""
        return self._view.rows_at(stored)

    def with_reward_transforms_of(self, rows: Tensor) -> Tensor:
        """Apply this dataset's reward transforms, in place, to rows that an environment gave.

        Its reward wrappers have shaped those already (`with_wrapper_rewards`).
        """
        for transform in self._view.reward_transforms:
            transform.apply_(rows[:, self.layout.reward])
        return rows

    def batch_shares(self) -> tuple[Tensor, Tensor]:
        """Rows of each part of a mixture and its weight in a batch; one part if it is none."""
        return self._view.part_sizes()

    # -- other views --------------------------------------------------------------------------

    def with_reward_transform(
        self,
        scale: float = 1.0,
        shift: float = 0.0,
        clip_min: float | None = None,
        clip_max: float | None = None,
    ) -> TransitionDataset:
        """Rewards scaled, then shifted, then clipped; several calls act one after the other."""
        step = checked_reward(scale, shift, clip_min, clip_max)
        if step == RewardTransform():
            return self
        return self._with(reward_transforms=(*self._view.reward_transforms, step))

    def with_wrapper_rewards(
        self,
        scale: float = 1.0,
        shift: float = 0.0,
        clip_min: float | None = None,
        clip_max: float | None = None,
    ) -> TransitionDataset:
        """Rewards as an environment's reward wrappers would give them, before all transforms."""
        step = checked_reward(scale, shift, clip_min, clip_max)
        if step == RewardTransform():
            return self
        return self._with(wrapper_rewards=(*self._view.wrapper_rewards, step))

    def with_observation_normalization(self, mean: Numbers, std: Numbers) -> TransitionDataset:
        """(obs - mean) / std, for next observations too, as `ObservationNormalizer` has it."""
        center = per_column(mean, self.obs_dim, "mean").float()
        spread = per_column(std, self.obs_dim, "std").float()
        require_all(spread > 0, spread, "std must be greater than 0")
        step = ColumnStep(center, 1 / spread)
        return self._with(obs_steps=(*self._view.obs_steps, step))

    def with_action_scaling(
        self, low: Numbers, high: Numbers, *, clip: bool = False
    ) -> TransitionDataset:
        """Actions of [low, high] as [-1, 1], clipped if asked; a dimension without width is 0."""
        self._require_continuous("scaled")
        bottom, top = ordered(low, high, self.action_width)
        center, _, inverse = unit_scale(bottom.numpy(), top.numpy())
        step = ColumnStep(torch.from_numpy(center), torch.from_numpy(inverse))
        scaled = self._with(action_steps=(*self._view.action_steps, step))
        return scaled.with_action_clipping() if clip else scaled

    def with_action_clipping(self, low: Numbers = -1.0, high: Numbers = 1.0) -> TransitionDataset:
        """Actions, in the units they have by now, clipped to [low, high]."""
        self._require_continuous("clipped")
        bottom, top = (bound.float() for bound in ordered(low, high, self.action_width))
        *before, last = self._view.action_steps or (ColumnStep.identity(self.action_width),)
        if last.limits is not None:
            bottom, top = (bound.clamp(bottom, top) for bound in last.limits)
        return self._with(action_steps=(*before, last._replace(limits=(bottom, top))))

    def _require_continuous(self, change: str) -> None:
        if self.discrete:
            raise DatasetError(f"{self.source}: actions are discrete and cannot be {change}")

    def with_discrete_actions(self) -> TransitionDataset:
        """Read whole numbers that are stored as floats as discrete actions, counted from 0."""
        if self.discrete:
            return self
        actions = self.actions
        if self.action_width != 1:
            raise DatasetError(
                f"{self.source}: actions have {self.action_width} columns; a discrete action has one"
            )
        odd = ((actions != actions.round()) | (actions < 0) | (actions >= MAX_CHOICES)).flatten()
        if bool(odd.any()):
            row = int(odd.nonzero()[0])
            raise DatasetError(
                f"{self.source}: action {actions[row, 0]:g} at row {row} is not a whole number "
                "from 0, so the actions cannot be read as discrete"
            )
        packed = self._view.packed
        layout = replace(packed.layout, discrete=True)
        count = int(actions.max()) + 1
        log_probs = as_choice_log_probs(packed.behavior_log_probs, self.source)
        return self._with(
            packed=replace(packed, layout=layout, num_actions=count, behavior_log_probs=log_probs)
        )

    def with_next_actions(self) -> TransitionDataset:
        """The action of the following row as next action; not valid where an episode ends."""
        if self.layout.has_next_actions:
            return self
        ends = self._view.packed.ends
        if ends is None:
            raise DatasetError(
                f"{self.source}: episode boundaries are unknown, so next actions cannot be built. "
                "Supply 'truncations' or 'next_actions', or use the original log with "
                "`rl-training data convert --with-next-actions`."
            )
        has_next = torch.ones(self._view.packed.rows.shape[0], dtype=torch.bool)
        has_next[torch.from_numpy(ends)] = False
        return self._with(has_next=has_next)

    def with_valid_next_actions(self) -> TransitionDataset:
        """Drop rows that bootstrap but have no next action (truncated last rows)."""
        dataset = self.with_next_actions()
        valid = dataset._view.column(dataset.layout.next_action_valid)
        return dataset._subset((valid + dataset.terminations).nonzero().squeeze(1))

    def with_returns(self, gamma: float, *, lower_bounds: bool = False) -> TransitionDataset:
        """Add discounted returns to go to batches, of the rewards after all transforms so far.

        With `lower_bounds` an episode that was cut goes on for ever with the dataset's worst reward, if
        that is negative; otherwise its sum ends at the cut.
        """
        episodes = self.episodes
        last = np.repeat(episodes.starts + episodes.lengths - 1, episodes.lengths)
        rewards, terminated = self.rewards, self.terminations > 0
        worst = float(rewards.min()) if lower_bounds else None
        totals = returns_to_go(rewards, torch.from_numpy(last), gamma, terminated, worst)
        stored = torch.full((self._view.packed.rows.shape[0],), -torch.inf)
        stored[self._view.storage_rows(0, len(self))] = totals
        return self._with(returns=stored)

    def top_episodes(self, fraction: float) -> TransitionDataset:
        """Keep the best share of episodes by undiscounted return, at least one."""
        require_fraction(fraction, one_allowed=True)
        episodes = self.episodes
        return self._subset(rows_of(episodes, choose_best(episodes.returns, fraction)))

    def split(self, fraction: float, seed: int) -> tuple[TransitionDataset, TransitionDataset]:
        """Two parts, the first with `fraction` of the episodes (of the rows, if unknown)."""
        require_fraction(fraction, one_allowed=False)
        has_episodes = self.boundaries != "unknown"
        episodes = self.episodes if has_episodes else Episodes.single_rows(len(self))
        first = choose_share(
            len(episodes.starts), fraction, seed, "episode" if has_episodes else "row"
        )
        return (
            self._subset(rows_of(episodes, first)),
            self._subset(rows_of(episodes, ~first)),
        )

    def _subset(self, positions: Tensor) -> TransitionDataset:
        if len(positions) == len(self):
            return self
        if len(positions) == 0:
            raise DatasetError(f"{self.source}: no transitions are left")
        index = self._view.index
        return self._with(index=positions if index is None else index[positions])

    def save(self, path: str | Path) -> None:
        """Write the rows, transforms applied, in the format of the file ending; all or nothing."""
        save_dataset(self, Path(path).expanduser())
