"""Packing: named arrays into one matrix of rows, piece by piece, checked on the way."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rl_training.config import DatasetError
from rl_training.data.packing.flags import Ends, Flags, as_flags, episode_ends, row_breaks
from rl_training.data.packing.layout import RowLayout
from rl_training.data.packing.names import BEHAVIOR_FIELDS
from rl_training.data.packing.plan import PackingPlan, plan_packing
from rl_training.data.packing.propensities import as_log_probs
from rl_training.data.packing.source import Array, FieldSource, piece_rows

Boundaries = Literal["given", "derived", "unknown"]
Matrix = npt.NDArray[np.float32]
MAX_CHOICES = 1 << 24  # float32 rows count exactly up to here
Allocate = Callable[[int, int], Tensor]  # rows, width -> a tensor to fill


@dataclass(frozen=True, eq=False)
class PackedRows:
    """The storage that all views of a dataset share."""

    rows: Tensor  # (N, layout.width) float32
    layout: RowLayout
    boundaries: Boundaries
    ends: Ends | None  # last row of every episode; None when boundaries are unknown
    num_actions: int | None  # discrete actions only
    notes: tuple[str, ...]
    source: str
    in_memory: bool = True
    first_action: int | None = None  # what the log's first choice was called, if that was declared
    # (N,) log-probabilities of the logged actions under the logging policy; apart from the rows, so that
    # batches do not carry them
    behavior_log_probs: Tensor | None = None


def in_memory(rows: int, width: int) -> Tensor:
    """Allocate memory; `MemoryError` if the machine has less, which the system itself notices too late."""
    if hasattr(os, "sysconf"):
        physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if 0 < physical < rows * width * 4:
            raise MemoryError
    return torch.empty(rows, width)


def pack(source: FieldSource, allocate: Allocate = in_memory) -> PackedRows:
    """Read a source once, front to back, into packed rows."""
    plan = plan_packing(source)
    packer = _Packer(source, plan)
    count = plan.length if plan.keep is None else int(plan.keep.sum())
    rows = allocate(count, plan.layout.width)
    with np.errstate(over="ignore", invalid="ignore"):  # the check finds what overflowed
        packer.fill(rows.numpy())
    boundaries, truncations, note = packer.boundaries()
    if plan.flags.truncations is None:
        cut = torch.from_numpy(truncations)
        rows[:, plan.layout.truncation] = cut.float()
        if plan.layout.has_next_actions and "next_action_valid" not in plan.names:
            rows[:, plan.layout.next_action_valid] *= ~cut
    ends = None
    if boundaries != "unknown":
        keep = slice(None) if plan.keep is None else plan.keep
        ends = episode_ends(plan.flags.terminations[keep], truncations[keep])
    num_actions, stated = packer.num_actions, source.remarks.get("num_actions")
    if num_actions is not None and isinstance(stated, int):
        num_actions = max(num_actions, stated)  # a choice that no row takes is still a choice
        if num_actions > MAX_CHOICES:
            raise DatasetError(f"{source.label}: 'num_actions' is {num_actions}: too many choices")
    notes = (*plan.notes, note) if note else plan.notes
    first_action = source.remarks.get("first_action") if plan.layout.discrete else None
    if isinstance(first_action, int) and first_action != 0:
        notes = (*notes, f"actions are renumbered: 0 was {first_action} in the original log")
    return PackedRows(
        rows, plan.layout, boundaries, ends, num_actions, notes, source.label,
        first_action=first_action if isinstance(first_action, int) else None,
        behavior_log_probs=packer.behavior_log_probs(),
    )  # fmt: skip


class _Packer:
    """State carried from piece to piece."""

    def __init__(self, source: FieldSource, plan: PackingPlan) -> None:
        self.source = source
        self.plan = plan
        self.num_actions = 1 if plan.layout.discrete else None
        self._ahead: dict[str, Array] = {}  # first row of the next piece, read early
        self._derives = plan.flags.truncations is None
        self._breaks: Flags = np.zeros(plan.length if self._derives else 0, np.bool_)
        self._behavior = next((name for name in BEHAVIOR_FIELDS if name in plan.names), None)
        self._log_probs: list[Matrix] = []  # a piece each, of the rows that are kept

    def fill(self, out: Matrix) -> None:
        plan, size = self.plan, piece_rows(self.plan.layout.width)
        scratch = np.empty((0 if plan.keep is None else size, plan.layout.width), np.float32)
        written = 0
        for start in range(0, plan.length, size):
            stop = min(start + size, plan.length)
            keep = None if plan.keep is None else plan.keep[start:stop]
            whole = keep is None or bool(keep.all())
            block = out[written : written + stop - start] if whole else scratch[: stop - start]
            self._fill_piece(block, start, stop)
            if not np.isfinite(block.sum()):
                self._report_nonfinite(block, start)
            if self._behavior is not None:
                log_probs = self._read_log_probs(self._behavior, start, stop)
                self._log_probs.append(log_probs if keep is None else log_probs[keep])
            if keep is not None and not whole:
                block = block[keep]
                out[written : written + len(block)] = block
            written += len(block)
            if self._derives:
                first = max(start - 1, 0)
                layout = plan.layout
                self._breaks[first : stop - 1] = row_breaks(
                    out[first : stop - 1, layout.next_obs], out[first + 1 : stop, layout.obs]
                )

    def _fill_piece(self, block: Matrix, start: int, stop: int) -> None:
        plan, layout = self.plan, self.plan.layout
        flags = plan.flags
        ends = flags.terminations[start:stop]
        if plan.next_obs == "field":
            block[:, layout.obs] = self._read("obs", start, stop)
            block[:, layout.next_obs] = self._read("next_obs", start, stop)
        else:
            obs, following = self._read_pair("obs", start, stop)
            block[:, layout.obs] = obs
            block[:, layout.next_obs] = following
            if plan.keep is not None:  # masked anyway, but must be a finite number
                block[ends, layout.next_obs] = obs[ends]
        block[:, layout.reward] = self._read("rewards", start, stop)[:, 0]
        block[:, layout.termination] = ends
        if flags.truncations is not None:
            block[:, layout.truncation] = flags.truncations[start:stop]
        else:
            block[:, layout.truncation] = 0
        if "next_actions" in plan.names:
            block[:, layout.actions] = self._actions(self._read("actions", start, stop), start)
            self._fill_next_actions(block, start, stop)
        elif layout.has_next_actions:
            actions, following = self._read_pair("actions", start, stop)
            block[:, layout.actions] = self._actions(actions, start)
            valid = ~self._source_ends(start, stop)
            block[:, layout.next_actions] = np.where(valid[:, None], following, actions)
            block[:, layout.next_action_valid] = valid
        else:
            block[:, layout.actions] = self._actions(self._read("actions", start, stop), start)

    def _fill_next_actions(self, block: Matrix, start: int, stop: int) -> None:
        layout = self.plan.layout
        block[:, layout.next_actions] = self._read("next_actions", start, stop)
        if "next_action_valid" in self.plan.names:
            valid = self._read("next_action_valid", start, stop)
            label = f"{self.source.label}: 'next_action_valid'"
            block[:, layout.next_action_valid] = as_flags(valid, label, start)
        else:
            block[:, layout.next_action_valid] = ~self._ends_without_next(start, stop)

    def _ends_without_next(self, start: int, stop: int) -> Flags:
        """Rows whose stored next action belongs to another episode, or to none."""
        flags = self.plan.flags
        if self.plan.keep is not None:
            return self._source_ends(start, stop)
        if flags.truncations is None:  # cuts that are derived later are left to `pack`
            return flags.terminations[start:stop]
        ends: Flags = flags.terminations[start:stop] | flags.truncations[start:stop]
        return ends

    def _source_ends(self, start: int, stop: int) -> Flags:
        """Episode ends before rows were dropped: a dropped row still provides its action."""
        plan = self.plan
        ends: Flags = plan.flags.terminations[start:stop].copy()
        if plan.keep is not None:
            ends |= ~plan.keep[start:stop]
        if stop == plan.length:
            ends[-1] = True
        return ends

    def _actions(self, actions: Array, start: int) -> Array:
        if self.num_actions is not None:
            if actions.min() < 0:
                row = start + int((actions[:, 0] < 0).argmax())
                raise self._error(
                    f"'actions' has {actions[row - start, 0]} at row {row}: whole numbers are "
                    "discrete actions and count from 0. Subtract the smallest from all of them, or "
                    "store continuous actions as floats"
                )
            self.num_actions = max(self.num_actions, int(actions.max()) + 1)
            if self.num_actions > MAX_CHOICES:
                raise self._error(f"'actions' goes up to {self.num_actions - 1}: too many choices")
        return actions

    def _read_log_probs(self, name: str, start: int, stop: int) -> Matrix:
        return as_log_probs(
            self._read(name, start, stop),
            are_logs=name == "behavior_log_probs",
            discrete=self.plan.layout.discrete,
            label=f"{self.source.label}: {self.plan.names[name]!r}",
            first_row=start,
        )

    def behavior_log_probs(self) -> Tensor | None:
        """Log-probabilities of all rows that are kept; None if the source has none."""
        if self._behavior is None:
            return None
        return torch.from_numpy(np.concatenate(self._log_probs))

    def _read(self, name: str, start: int, stop: int) -> Array:
        values = self.source.read(self.plan.names[name], start, stop)
        return values.reshape(len(values), math.prod(values.shape[1:]))

    def _read_pair(self, name: str, start: int, stop: int) -> tuple[Array, Array]:
        """Rows and the rows that follow them; past the end, the last row again."""
        first = self._ahead.get(name)
        if first is None:
            first = self._read(name, 0, 1)
        rest = self._read(name, start + 1, stop + 1)
        both = np.concatenate([first, rest])
        if len(both) == stop - start:
            both = np.concatenate([both, both[-1:]])
        self._ahead[name] = both[-1:].copy()
        return both[:-1], both[1:]

    def boundaries(self) -> tuple[Boundaries, Flags, str]:
        """Truncations, how they were found, and a note for the user."""
        flags, stated = self.plan.flags, self.source.remarks.get("boundaries")
        if flags.truncations is not None:
            if stated == "unknown":
                return "unknown", flags.truncations, "episode boundaries are unknown"
            if stated == "derived":
                return "derived", flags.truncations, "truncations were derived before saving"
            return "given", flags.truncations, ""
        open_rows = ~flags.terminations
        truncations: Flags = self._breaks & open_rows
        count = int(truncations.sum())
        shuffled = 2 * int(self._breaks.sum()) > self.plan.length
        if shuffled and 2 * count > int(open_rows.sum()):  # not only cut often
            nowhere = np.zeros(self.plan.length, np.bool_)
            return "unknown", nowhere, "rows do not follow on: episode boundaries are unknown"
        return "derived", truncations, f"derived {count} truncations where rows do not follow on"

    def _report_nonfinite(self, block: Matrix, start: int) -> None:
        """Raise an error with field and row; finite numbers whose sum overflows are fine."""
        layout = self.plan.layout
        columns_of: dict[str, Any] = {"obs": layout.obs, "actions": layout.actions,
                                 "rewards": layout.reward, "next_obs": layout.next_obs,
                                 "next_actions": layout.next_actions}  # fmt: skip
        for name, columns in columns_of.items():
            if name == "next_actions" and not layout.has_next_actions:
                continue
            values = block[:, columns].reshape(len(block), -1)
            bad = ~np.isfinite(values)
            if bad.any():
                row, column = np.argwhere(bad)[0]
                spelling = self.plan.names.get(name, self.plan.names[name.removeprefix("next_")])
                raise self._error(f"{spelling!r} has {values[row, column]} at row {start + row}")

    def _error(self, message: str) -> DatasetError:
        return DatasetError(f"{self.source.label}: {message}")
