"""Checks of data against an environment: do observations and actions have its shape?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rl_training.data.checks.action_checks import are_whole_numbers, numbering_command
from rl_training.data.checks.column_checks import Columns, Finding
from rl_training.spec import ProblemSpec

_OTHER_LOG = "name the environment that the data comes from, or"


def check_problem(data: Columns, spec: ProblemSpec) -> Iterator[Finding]:
    """Find mismatches for which training in this environment would refuse the data."""
    kind = kind_of(data)
    if data.obs.shape[1] != spec.obs_dim:
        yield Finding(
            "error", "observation-width",
            f"observations have {_columns(data.obs.shape[1])}, "
            f"but those of the environment have {spec.obs_dim}", None,
            f"{_OTHER_LOG} bring the columns in line with its observations",
        )  # fmt: skip
    as_choices = spec.action_kind == "discrete" and are_whole_numbers(data.actions)
    if kind != spec.action_kind and not as_choices:
        stored = "floats" if spec.action_kind == "continuous" else "whole numbers from 0"
        yield Finding(
            "error", "action-kind",
            f"actions are {kind}, but those of the environment are {spec.action_kind}", None,
            f"{_OTHER_LOG} store its actions as {stored}",
        )  # fmt: skip
    elif data.actions.shape[1] != spec.action_width:
        yield Finding(
            "error", "action-width",
            f"actions have {_columns(data.actions.shape[1])}, "
            f"but those of the environment have {spec.action_width}", None,
            f"{_OTHER_LOG} bring the columns in line with its actions",
        )  # fmt: skip
    elif as_choices:
        if not data.discrete:
            yield Finding(
                "info", "whole-number-actions",
                "actions are whole numbers stored as floats; in this environment they are choices",
                None, "none needed: training reads them so, too",
            )  # fmt: skip
        yield from _check_choices(data, spec.action_dim)


def fits_actions(data: Columns, spec: ProblemSpec) -> bool:
    """True if the action bounds of the environment apply to these actions."""
    same_width = data.actions.shape[1] == spec.action_width
    return spec.action_kind == "continuous" == kind_of(data) and same_width


def kind_of(data: Columns) -> str:
    return "discrete" if data.discrete else "continuous"


def _check_choices(data: Columns, count: int) -> Iterator[Finding]:
    rows = np.flatnonzero(data.actions[:, 0] >= count)
    smallest = int(data.actions.min())
    if len(rows):
        yield Finding(
            "error", "action-choices",
            f"action {data.actions[rows[0], 0]:g} is not among the environment's {count} choices "
            f"(0 to {count - 1}) at {data.at(rows)}", int(rows[0]),
            f"{_OTHER_LOG} number its choices from 0"
            + (f": `{numbering_command('IN', smallest, floats=not data.discrete)}`" if smallest > 0 else ""),
        )  # fmt: skip


def _columns(count: int) -> str:
    return f"{count} column{'s' * (count != 1)}"
