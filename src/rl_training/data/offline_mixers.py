"""Mixtures: several datasets as one, with a share of every batch for each part."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from rl_training.config import DatasetError
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.packing.cache import temporary_rows
from rl_training.data.packing.pack import Boundaries, PackedRows, in_memory
from rl_training.data.transitions.view import RowView, Shares

MIXED = " + "  # between the sources of parts


def mix_transition_datasets(
    datasets: Sequence[TransitionDataset], weights: Sequence[float] | None = None
) -> TransitionDataset:
    """Join datasets into one, transforms applied.

    Args:
        datasets: Parts with the same observation width and action kind.
        weights: Share of each part in a batch; by size when left out.
    """
    if not datasets:
        raise DatasetError("a mixture needs at least one dataset")
    for other in datasets[1:]:
        _require_same_kind(datasets[0], other)
    packed = _concatenate(datasets, _notes(datasets))
    return TransitionDataset.from_view(RowView(packed, shares=_shares(datasets, weights)))


def _require_same_kind(first: TransitionDataset, other: TransitionDataset) -> None:
    for name in ("obs_dim", "discrete", "action_width"):
        ours, theirs = getattr(first, name), getattr(other, name)
        if ours != theirs:
            raise DatasetError(
                f"cannot mix {first.source} and {other.source}: {name} is {ours} and {theirs}"
            )


def _notes(datasets: Sequence[TransitionDataset]) -> list[str]:
    """Notes of all parts, and which optional fields are dropped because a part has none."""
    notes = [f"{part.source}: {note}" for part in datasets for note in part.notes]
    without = [part.source for part in datasets if not part.layout.has_next_actions]
    if without and len(without) < len(datasets):
        notes.append(f"dropped next actions: {', '.join(without)} has none")
    unlogged = [part.source for part in datasets if part.behavior_log_probs is None]
    if unlogged and len(unlogged) < len(datasets):
        notes.append(f"dropped behavior_log_probs: {', '.join(unlogged)} has none")
    return notes


def _concatenate(parts: Sequence[TransitionDataset], notes: Sequence[str]) -> PackedRows:
    layout = parts[0].layout.with_next_actions(all(p.layout.has_next_actions for p in parts))
    mapped = not all(part.in_memory for part in parts)
    total = sum(map(len, parts))
    rows = temporary_rows(total, layout.width) if mapped else in_memory(total, layout.width)
    boundaries = _common_boundaries(parts)
    written = 0
    ends = []
    for part in parts:
        first = written
        for piece in part.pieces():
            rows[written : written + len(piece)] = piece[:, : layout.width]
            written += len(piece)
        if boundaries != "unknown":
            ends.append(part.episode_starts + part.episode_lengths - 1 + first)
            # The next part is another episode, which is a cut and not a termination.
            if written < total and not rows[written - 1, layout.termination]:
                rows[written - 1, layout.truncation] = 1
    return PackedRows(
        rows,
        layout,
        boundaries,
        np.concatenate(ends) if ends else None,
        max((part.num_actions for part in parts if part.num_actions is not None), default=None),
        tuple(notes),
        MIXED.join(part.source for part in parts),
        in_memory=not mapped,
        behavior_log_probs=_joined_log_probs(parts),
        first_action=parts[0].first_action if len({p.first_action for p in parts}) == 1 else None,
    )


def _joined_log_probs(parts: Sequence[TransitionDataset]) -> Tensor | None:
    """Behaviour's log-probabilities of all parts; None if a part has none."""
    log_probs = [part.behavior_log_probs for part in parts]
    given = [values for values in log_probs if values is not None]
    return torch.cat(given) if len(given) == len(parts) else None


def _common_boundaries(parts: Sequence[TransitionDataset]) -> Boundaries:
    kinds = {part.boundaries for part in parts}
    if "unknown" in kinds:
        return "unknown"
    return "derived" if "derived" in kinds else "given"


def _shares(parts: Sequence[TransitionDataset], weights: Sequence[float] | None) -> Shares | None:
    inner = [part.batch_shares() for part in parts]
    if weights is None:
        if all(len(sizes) == 1 for sizes, _ in inner):
            return None
        weights = [float(len(part)) for part in parts]
    if len(weights) != len(parts):
        raise DatasetError(f"{len(parts)} datasets need {len(parts)} weights, got {len(weights)}")
    outer = torch.tensor(weights, dtype=torch.float64)
    if not bool((outer.isfinite() & (outer > 0)).all()):
        raise DatasetError(f"weights must be greater than 0, got {list(weights)}")
    sizes = torch.cat([size for size, _ in inner])
    bounds = torch.cat([torch.zeros(1, dtype=torch.int64), sizes.cumsum(0)])
    share: list[Tensor] = [
        weight * shares / shares.sum() for weight, (_, shares) in zip(outer, inner, strict=True)
    ]
    return Shares(bounds, torch.cat(share) / outer.sum())
