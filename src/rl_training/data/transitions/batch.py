"""A batch of transitions: what a loss sees, as views of one gathered block of rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from torch import Tensor

from rl_training.data.packing.layout import RowLayout


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
    weights: Tensor | None = None  # (B,) importance weights, or (B, members) of an ensemble
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

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """Tensors that hold everything: the packed rows, and fields that are no views of them."""
        rows = self._rows
        storage = None if rows is None else rows.untyped_storage().data_ptr()
        apart = {
            name: value
            for name, value in self.fields().items()
            if value.untyped_storage().data_ptr() != storage
        }
        return apart if rows is None else {"rows": rows, **apart}

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> Batch:
        """Lay out `tensors`, named as in the property, as this batch is laid out."""
        rows = tensors.get("rows")
        if rows is self._rows and all(
            tensors[name] is value for name, value in self.tensors.items()
        ):
            return self
        values = {}
        for name, value in self.fields().items():
            if name in tensors:
                values[name] = tensors[name]
            else:
                assert rows is not None
                assert self._rows is not None
                offset = value.storage_offset() - self._rows.storage_offset()
                size = (len(rows), *value.shape[1:])
                values[name] = rows.as_strided(size, value.stride(), rows.storage_offset() + offset)
        batch = Batch(**values)
        object.__setattr__(batch, "_rows", rows)
        return batch

    def with_weights(self, weights: Tensor) -> Batch:
        """These rows with other weights, without a copy."""
        batch = dataclasses.replace(self, weights=weights)
        object.__setattr__(batch, "_rows", self._rows)
        return batch

    def parts(self, count: int) -> list[Batch]:
        """Split into `count` batches of equal size, without a copy."""
        if count == 1:
            return [self]
        pieces = {name: value.tensor_split(count) for name, value in self.tensors.items()}
        return [
            self.with_tensors({name: piece[index] for name, piece in pieces.items()})
            for index in range(count)
        ]

    def fields(self) -> dict[str, Tensor]:
        """Tensors by the name of their field, without those that are missing."""
        values = {
            f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "_rows"
        }
        return {name: value for name, value in values.items() if value is not None}

    def __len__(self) -> int:
        return self.rewards.shape[0]

    def __repr__(self) -> str:
        carried = "" if self.next_actions is None else ", with next actions"
        actions = tuple(self.actions.shape[1:]) or "discrete"
        return f"Batch({len(self)} transitions, obs {tuple(self.obs.shape[1:])}, actions {actions}{carried})"
