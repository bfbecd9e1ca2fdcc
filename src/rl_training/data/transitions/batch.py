"""What a loss sees: a batch of transitions, as views of one gathered block of rows."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace

import torch
from torch import Tensor

from rl_training.data.packing.layout import RowLayout

LINE = 64  # bytes, to which PyTorch aligns memory


@dataclass(frozen=True, eq=False, repr=False)
class Batch:
    """B transitions. Only `terminations` stop bootstrapping; truncations are not needed here."""

    obs: Tensor  # (B, obs_dim)
    actions: Tensor  # (B, act_dim) float32, or (B,) int64 when discrete
    rewards: Tensor  # (B,)
    next_obs: Tensor  # (B, obs_dim)
    terminations: Tensor  # (B,) float32, 0 or 1
    next_actions: Tensor | None = None  # like actions; anything where not valid
    next_action_valid: Tensor | None = None  # (B,) float32, 0 or 1
    discounts: Tensor | None = None  # (B,) per-row discount, for n-step rows
    weights: Tensor | None = None  # (B,) importance weights
    indices: Tensor | None = None  # (B,) where the rows came from
    returns: Tensor | None = None  # (B,) discounted returns to go; -inf where not known
    # Not an argument, so that dataclasses.replace forgets it and never pairs it with new fields.
    _rows: Tensor | None = field(default=None, init=False)

    @classmethod
    def from_rows(
        cls,
        rows: Tensor,
        layout: RowLayout,
        *,
        discounts: Tensor | None = None,
        weights: Tensor | None = None,
        indices: Tensor | None = None,
        returns: Tensor | None = None,
    ) -> Batch:
        """Views of packed rows (B, layout.width); discrete actions become int64."""
        parts = rows.split_with_sizes(layout.sizes, 1)
        obs, actions, next_obs, scalars = parts[:4]
        rewards, terminations, _ = scalars.unbind(1)
        next_actions = next_action_valid = None
        if layout.has_next_actions:
            next_actions, next_action_valid = parts[4], parts[5].squeeze(1)
        if layout.discrete:
            actions = actions.squeeze(1).long()
            next_actions = None if next_actions is None else next_actions.squeeze(1).long()
        batch = cls(
            obs, actions, rewards, next_obs, terminations, next_actions, next_action_valid,
            discounts, weights, indices, returns,
        )  # fmt: skip
        object.__setattr__(batch, "_rows", rows)
        return batch

    @property
    def obs_actions(self) -> Tensor:
        """Observations and actions side by side (B, obs_dim + act_dim), without a copy if packed."""
        if self._rows is not None:
            width = self.obs.shape[1] + (self.actions.shape[1] if self.actions.ndim == 2 else 1)
            return self._rows.narrow(1, 0, width)
        actions = self.actions.reshape(len(self), -1).to(self.obs.dtype)
        return torch.cat([self.obs, actions], 1)

    def with_choices(self, **choices: Tensor) -> Batch:
        """The same rows with discrete actions that are elsewhere in memory."""
        batch = replace(self, **choices)
        object.__setattr__(batch, "_rows", self._rows)
        return batch

    def parts(self, count: int) -> list[Batch]:
        """`count` batches of equal size: views, or where these would lie across cache lines copies.

        Sums are rounded by how memory is aligned, and a part is to be the same wherever it is.
        """
        if count == 1:
            return [self]
        names = [f.name for f in fields(self)]
        split = {
            name: getattr(self, name).tensor_split(count)
            for name in names
            if getattr(self, name) is not None
        }
        parts = []
        for index in range(count):
            own = {name: pieces[index] for name, pieces in split.items()}
            rows = own.pop("_rows", None)
            part = Batch(**own)
            object.__setattr__(part, "_rows", rows)
            parts.append(part if part._is_aligned() else part.copy())
        return parts

    def _is_aligned(self) -> bool:
        return all(getattr(self, name).data_ptr() % LINE == 0 for name in self.held())

    def held(self) -> list[str]:
        """Fields that are no views of the rows; the rows themselves are `_rows`."""
        values = ((f.name, getattr(self, f.name)) for f in fields(self))
        return [
            name
            for name, value in values
            if value is not None and (name == "_rows" or not self._has_in_rows(value))
        ]

    def _has_in_rows(self, value: Tensor) -> bool:
        rows = self._rows
        return rows is not None and memory_of(value) == memory_of(rows)

    def copy(self) -> Batch:
        """The same in memory of its own, laid out alike."""
        own = {name: _copy_of(getattr(self, name)) for name in self.held()}
        place = own.pop("_rows", None)
        if self._rows is not None and place is not None:
            for f in fields(self):
                value = getattr(self, f.name)
                if f.name not in own and f.name != "_rows" and value is not None:
                    offset = value.storage_offset() - self._rows.storage_offset()
                    own[f.name] = place.as_strided(value.shape, value.stride(), offset)
        batch = Batch(**own)
        object.__setattr__(batch, "_rows", place)
        return batch

    @property
    def form(self) -> tuple[object, ...]:
        """Equal for batches that are laid out alike."""
        rows = self._rows
        return (
            self.obs.shape,
            self.actions.shape,
            self.actions.dtype,
            None if rows is None else rows.stride(),
            self.next_actions is None,
            self.next_action_valid is None,
            self.discounts is None,
            self.weights is None,
            self.indices is None,
            self.returns is None,
        )

    def __len__(self) -> int:
        return self.rewards.shape[0]

    def __repr__(self) -> str:
        carried = "" if self.next_actions is None else ", with next actions"
        actions = tuple(self.actions.shape[1:]) or "discrete"
        return f"Batch({len(self)} transitions, obs {tuple(self.obs.shape[1:])}, actions {actions}{carried})"


def memory_of(tensor: Tensor) -> int:
    """Which memory it is in, as long as anything keeps that alive."""
    return tensor.untyped_storage()._cdata


def _copy_of(value: Tensor) -> Tensor:
    if 0 in value.stride():  # several entries in one place
        return value.clone(memory_format=torch.contiguous_format)
    return torch.empty_strided(
        value.shape, value.stride(), dtype=value.dtype, device=value.device
    ).copy_(value)
