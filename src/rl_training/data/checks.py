"""What may be wrong with a dataset, found before training finds it the slow way."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from rl_training.config import DatasetError
from rl_training.data.action_rules import Bound, as_bounds, check_actions
from rl_training.data.check_rules import (
    Columns,
    Finding,
    check_duplicates,
    check_observations,
    check_rewards,
    check_sequence,
    check_time_limits,
    list_rows,
)
from rl_training.data.field_names import match_field_names
from rl_training.data.offline_dataset import TransitionDataset

__all__ = ["Finding", "check_dataset", "check_fields", "is_wrong"]

_NO_FIX = "correct the file"


def is_wrong(findings: Iterable[Finding]) -> bool:
    """Whether anything asks for a change: an error or a warning."""
    return any(finding.level != "info" for finding in findings)


def check_dataset(
    dataset: TransitionDataset,
    *,
    action_low: Bound | None = None,
    action_high: Bound | None = None,
    max_findings_rows: int = 3,
) -> list[Finding]:
    """Everything suspicious in a dataset that could be loaded; messages list that many rows."""
    data = _columns(dataset, max_findings_rows)
    findings = [
        *check_observations(data),
        *check_actions(data, as_bounds(action_low, action_high, data.actions.shape[1])),
        *check_sequence(data),
        *check_time_limits(data),
        *check_rewards(data),
        *check_duplicates(data),
        *(Finding("info", "note", note, None, "") for note in dataset.notes),
    ]
    return _worst_first(findings)


def check_fields(
    fields: Mapping[str, npt.NDArray[Any]],
    source: str = "data",
    *,
    action_low: Bound | None = None,
    action_high: Bound | None = None,
    max_findings_rows: int = 3,
) -> list[Finding]:
    """The checks on raw arrays, for files that the strict loader refuses."""
    try:
        names = match_field_names(fields, source)
    except DatasetError as error:
        return [Finding("error", "unreadable", str(error), None, _NO_FIX)]
    known = {spelling: np.asarray(fields[spelling]) for spelling in names.known.values()}
    findings = [*_unequal_lengths(known), *_not_finite(known, max_findings_rows)]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what loading warns of comes back as a note
            dataset = TransitionDataset.from_dict(fields, source)
    except DatasetError as error:
        if not findings:
            findings.append(Finding("error", "unreadable", str(error), None, _NO_FIX))
        return findings
    bounds = {"action_low": action_low, "action_high": action_high}
    rest = check_dataset(dataset, **bounds, max_findings_rows=max_findings_rows)
    return _worst_first([*findings, *rest])


def _columns(dataset: TransitionDataset, shown_rows: int) -> Columns:
    known = dataset.boundaries != "unknown"
    actions = dataset.actions.float()
    return Columns(
        obs=np.ascontiguousarray(dataset.obs.numpy()),
        actions=np.ascontiguousarray(actions.reshape(len(actions), -1).numpy()),
        rewards=np.ascontiguousarray(dataset.rewards.numpy()),
        next_obs=np.ascontiguousarray(dataset.next_obs.numpy()),
        terminations=dataset.terminations.numpy() > 0,
        truncations=dataset.truncations.numpy() > 0,
        discrete=dataset.discrete,
        starts=dataset.episode_starts if known else None,
        lengths=dataset.episode_lengths if known else None,
        shown_rows=shown_rows,
    )


def _unequal_lengths(fields: Mapping[str, npt.NDArray[Any]]) -> Iterator[Finding]:
    lengths = {name: len(values) for name, values in fields.items() if values.ndim}
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
        table = values.reshape(len(values), -1) if values.ndim else values.reshape(1, 1)
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
