"""Checks of a whole dataset: everything that would make training fail silently."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from rl_training.config import DatasetError
from rl_training.data.checks.action_checks import (
    Bound,
    as_bounds,
    check_actions,
    check_behavior_probs,
    check_numbering,
)
from rl_training.data.checks.column_checks import (
    Columns,
    Finding,
    check_duplicates,
    check_observations,
    check_rewards,
    list_rows,
)
from rl_training.data.checks.environment_checks import check_problem, fits_actions
from rl_training.data.checks.episode_order import check_order
from rl_training.data.checks.precision import check_precision
from rl_training.data.checks.scale_checks import COLUMN_SCALE, check_scales
from rl_training.data.checks.sequence_checks import check_sequence
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.packing.names import match_field_names
from rl_training.data.packing.pack import pack
from rl_training.data.packing.source import ArraySource, FieldSource
from rl_training.spec import ProblemSpec

__all__ = ["Finding", "check_dataset", "check_fields", "check_source", "is_wrong"]

_NO_FIX = "correct the file"


def is_wrong(findings: Iterable[Finding]) -> bool:
    """True if anything asks for a change of the data: an error or a warning.

    Columns of different scale ask for an option of training instead.
    """
    return any(finding.level != "info" and finding.name != COLUMN_SCALE for finding in findings)


def check_dataset(
    dataset: TransitionDataset,
    *,
    action_low: Bound | None = None,
    action_high: Bound | None = None,
    spec: ProblemSpec | None = None,
    max_findings_rows: int = 3,
) -> list[Finding]:
    """Check a dataset that could be loaded.

    Args:
        dataset: What training would see.
        action_low: Lower bounds of actions, if they are known.
        action_high: Upper bounds of actions.
        spec: The environment to compare with; its bounds are used then.
        max_findings_rows: How many rows a message lists.
    """
    data = _columns(dataset, max_findings_rows)
    if spec is not None and fits_actions(data, spec):
        action_low, action_high = spec.action_low, spec.action_high
    log_probs = None if (values := dataset.behavior_log_probs) is None else values.numpy()
    findings = [
        *(check_problem(data, spec) if spec is not None else ()),
        *check_observations(data.obs, max_findings_rows),
        *check_scales(data),
        *check_actions(data, as_bounds(action_low, action_high, data.actions.shape[1])),
        *(check_numbering(data) if spec is None and action_low is None else ()),
        *check_behavior_probs(log_probs, dataset.num_actions),
        *check_sequence(data),
        *check_rewards(data.rewards, data.terminations, max_findings_rows),
        *check_duplicates(data),
        *(Finding("info", "note", note, None, "") for note in dataset.notes),
    ]
    return _worst_first(findings)


def check_fields(fields: Mapping[str, Any], source: str = "data", **options: Any) -> list[Finding]:
    """Check raw arrays; options are those of `check_dataset`."""
    return check_source(ArraySource(fields, source), **options)


def check_source(
    source: FieldSource, *, max_findings_rows: int = 3, **options: Any
) -> list[Finding]:
    """Check a file, also one that the loader refuses; options are those of `check_dataset`."""
    try:
        fields = _FieldsInMemory(source)
    except DatasetError as error:
        return [Finding("error", "unreadable", str(error), None, _NO_FIX)]
    findings = [*_unequal_lengths(fields), *_not_finite(fields.arrays, max_findings_rows)]
    if not findings:
        findings += check_order(fields.arrays, fields.spellings)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the same is in the notes
            dataset = TransitionDataset.from_packed(pack(fields))
    except DatasetError as error:
        if not findings:
            findings.append(Finding("error", "unreadable", str(error), None, _NO_FIX))
        return findings
    findings += check_precision(fields.arrays, fields.spellings)
    rest = check_dataset(dataset, max_findings_rows=max_findings_rows, **options)
    return _worst_first([*findings, *rest])


class _FieldsInMemory:
    """The fields of a source that mean something to us, in memory since they are read twice."""

    def __init__(self, source: FieldSource) -> None:
        self.label, self.fields, self.remarks = source.label, source.fields, source.remarks
        self.spellings = match_field_names(source.fields, source.label).matched
        self.arrays = {
            name: source.read(name, 0, source.fields[name].shape[0])
            for name in self.spellings.values()
            if source.fields[name].shape and source.fields[name].dtype.kind in "fiubUS"
        }

    def read(self, field: str, start: int, stop: int) -> npt.NDArray[Any]:
        return self.arrays[field][start:stop]


def _columns(dataset: TransitionDataset, shown_rows: int) -> Columns:
    has_episodes = dataset.boundaries != "unknown"
    actions = dataset.actions.float()
    return Columns(
        obs=np.ascontiguousarray(dataset.obs.numpy()),
        actions=np.ascontiguousarray(actions.reshape(len(actions), -1).numpy()),
        rewards=np.ascontiguousarray(dataset.rewards.numpy()),
        next_obs=np.ascontiguousarray(dataset.next_obs.numpy()),
        terminations=dataset.terminations.numpy() > 0,
        truncations=dataset.truncations.numpy() > 0,
        discrete=dataset.discrete,
        first_action=dataset.first_action,
        starts=dataset.episode_starts if has_episodes else None,
        lengths=dataset.episode_lengths if has_episodes else None,
        shown_rows=shown_rows,
    )


def _unequal_lengths(fields: _FieldsInMemory) -> Iterator[Finding]:
    lengths = {name: len(values) for name, values in fields.arrays.items()}
    spellings = fields.spellings
    obs, actions = (lengths.get(spellings.get(name, "")) for name in ("obs", "actions"))
    if obs is not None and actions == obs - 1 and "next_obs" not in spellings:
        del lengths[spellings["obs"]]  # one episode, with its final observation
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} {length:,}" for name, length in lengths.items())
        yield Finding(
            "error", "unequal-lengths", f"fields differ in length: {listed}",
            min(lengths.values()), "cut all fields to the rows that belong together",
        )  # fmt: skip


def _not_finite(fields: Mapping[str, npt.NDArray[Any]], shown_rows: int) -> Iterator[Finding]:
    largest = np.finfo(np.float32).max
    for name, values in fields.items():
        if not np.issubdtype(values.dtype, np.floating) or not values.size:
            continue
        table = values.reshape(len(values), -1)
        with np.errstate(invalid="ignore"):
            size = np.abs(table)
        cases = {
            "nan": (np.isnan(table), "NaN", "remove these rows, or fill in the values"),
            "infinite": (np.isinf(table), "an infinite value", "remove or correct these rows"),
            "overflow": (
                np.isfinite(table) & (size > largest),
                "a value too large for float32",
                "rescale the column",
            ),
        }
        for kind, (bad, what, fix) in cases.items():
            rows = np.flatnonzero(bad.any(axis=1))
            if len(rows):
                message = (
                    f"{name!r} has {what} in {len(rows):,} rows: {list_rows(rows, shown_rows)}"
                )
                yield Finding("error", kind, message, int(rows[0]), fix)


def _worst_first(findings: Iterable[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda finding: ("error", "warning", "info").index(finding.level))
