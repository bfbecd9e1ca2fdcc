"""Checks of actions: do they vary, do they keep to the bounds, are they in the right units?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from rl_training.config import DatasetError
from rl_training.data.checks.column_checks import Columns, Finding

Bound = float | Sequence[float] | npt.NDArray[np.floating]
Bounds = tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]

_SATURATED_SHARE = 0.05
_CHOICES = 256  # whole numbers below this may be choices; larger ones are quantities
_ROUNDING = 1e-5  # beyond [-1, 1] by less is the last digit of another precision
_MANY_CHOICES = 1024  # above this, numbers of which few are taken are no choices, but labels


def as_bounds(low: Bound | None, high: Bound | None, width: int) -> Bounds | None:
    """One lower and one upper bound per action column; None when they are not known."""
    if low is None and high is None:
        return None
    if low is None or high is None:
        raise DatasetError("give both action_low and action_high, or neither")
    for name, value in (("action_low", low), ("action_high", high)):
        if np.ndim(value) > 0 and np.shape(value) != (width,):
            raise DatasetError(f"{name} must be one number or {width}, got {np.size(value)}")
    return (
        np.broadcast_to(np.asarray(low, np.float32), (width,)),
        np.broadcast_to(np.asarray(high, np.float32), (width,)),
    )


def check_behavior_probs(
    log_probs: npt.NDArray[np.float32] | None, num_actions: int | None
) -> Iterator[Finding]:
    """Find probabilities that never change although the behaviour was not uniform."""
    if log_probs is None or len(log_probs) < 2 or log_probs.min() != log_probs.max():
        return
    value = float(np.exp(np.float64(log_probs[0])))
    if num_actions is not None and abs(value * num_actions - 1) < 1e-3:
        return
    yield Finding(
        "info" if num_actions is None else "warning", "constant-behavior-probs",
        f"every logged action has {'density' if num_actions is None else 'probability'} {value:g}", 0,
        "fine if the behaviour was uniform; else log the true probabilities, or leave the field out",
    )  # fmt: skip


def check_actions(data: Columns, bounds: Bounds | None) -> Iterator[Finding]:
    smallest, largest = data.actions.min(axis=0), data.actions.max(axis=0)
    if bounds is None and one_hot(data.actions):
        return
    yield from check_constant_actions(data.actions, bounds)
    if data.discrete or (bounds is None and look_discrete(data.actions)):
        return
    if bounds is None:
        yield from _without_bounds(data)
    else:
        yield from _against_bounds(data, *bounds)
    yield from _saturation(data, bounds or (smallest, largest), bounds_are_known=bounds is not None)


def check_constant_actions(
    actions: npt.NDArray[np.floating], bounds: Bounds | None = None
) -> Iterator[Finding]:
    smallest, largest = actions.min(axis=0), actions.max(axis=0)
    constant = smallest == largest
    if constant.any() and len(actions) > 1:
        column = int(constant.argmax())
        fixed = bounds is not None and bounds[0][column] == bounds[1][column]
        yield Finding(
            "info" if fixed else "warning", "constant-action",
            f"action column {column} is always {smallest[column]:g}", 0,
            "nothing can be learned about it: record a policy that varies it, or leave it out",
        )  # fmt: skip


def check_numbering(data: Columns) -> Iterator[Finding]:
    """Find choices that do not count from 0, or are stored as floats; only without an environment."""
    smallest, largest = int(data.actions.min()), int(data.actions.max())
    if data.discrete and unclear_numbering(smallest, data.first_action):
        yield Finding(
            "warning", "action-numbering",
            f"actions go from {smallest} to {largest}, and choices count from 0: either they are "
            f"numbered from {smallest}, or no row takes the lower ones", None,
            f"`{numbering_command('IN', smallest)}` renumbers them from 0; "
            "--first-action 0 says that the numbers are right",
        )  # fmt: skip
    elif data.discrete:
        yield from _untaken_choices(data)
    if not data.discrete and look_discrete(data.actions):
        yield Finding(
            "warning", "whole-number-actions",
            f"actions are whole numbers from {smallest} to {largest}, stored as floats: they are "
            "read as continuous", None,
            f"if they are choices: `{numbering_command('IN', smallest, floats=True)}`; "
            "if not, set action_low and action_high for training",
        )  # fmt: skip
    if not data.discrete and one_hot(data.actions):
        yield Finding(
            "warning", "one-hot-actions",
            f"every action is a 1 among {data.actions.shape[1]} columns of 0, as choices are in "
            "one-hot form: they are read as continuous", None,
            f"if they are choices: `{numbering_command('IN', 0, floats=True)}`; "
            "if not, set action_low and action_high for training",
        )  # fmt: skip


def _untaken_choices(data: Columns) -> Iterator[Finding]:
    choices = int(data.actions.max()) + 1
    untaken = choices - len(np.unique(data.actions))
    if 2 * untaken > choices:
        yield Finding(
            "warning", "untaken-choices",
            f"actions go up to {choices - 1}, but {untaken:,} of these {choices:,} choices are never "
            "taken: are the numbers labels?", None, f"if they are: {RENUMBER}",
        )  # fmt: skip


RENUMBER = (
    "number the choices that occur from 0, "
    "`labels, actions = np.unique(actions, return_inverse=True)`, and save the log again"
)


def are_labels(choices: int, taken: int) -> bool:
    """True for numbers that no network should have an output each for."""
    return choices > _MANY_CHOICES and choices > 10 * taken


def unclear_numbering(smallest: int, first_action: int | None) -> bool:
    """True if no row takes action 0 and nobody has declared that it is a choice."""
    return smallest > 0 and first_action is None


def numbering_command(source: str, smallest: int, *, floats: bool = False) -> str:
    """Command that makes actions discrete and count from 0."""
    words = ["rl-training data convert", source, "OUT.npz"]
    words += ["--discrete-actions"] * floats
    words += [f"--first-action {smallest}"] * (smallest > 0)
    return " ".join(words)


def look_discrete(actions: npt.NDArray[np.floating]) -> bool:
    """True if floats are probably choices: few whole numbers, most of them taken."""
    if actions.max() >= _CHOICES or not are_whole_numbers(actions):
        return False
    taken = len(np.unique(actions))
    return bool(taken > 1 and 2 * taken > actions.max() - actions.min() + 1)


def are_whole_numbers(actions: npt.NDArray[np.floating]) -> bool:
    """True if actions can be read as choices: one column of whole numbers, none below 0."""
    return bool(actions.shape[1] == 1 and actions.min() >= 0 and (actions % 1 == 0).all())


def one_hot(actions: npt.NDArray[np.floating]) -> bool:
    """True if every row has one 1 and is 0 elsewhere, and not all have it in the same column."""
    if actions.shape[1] < 2 or not ((actions == 0) | (actions == 1)).all():
        return False
    return bool((actions.sum(axis=1) == 1).all() and len(np.unique(actions.argmax(axis=1))) > 1)


def _without_bounds(data: Columns) -> Iterator[Finding]:
    size = np.abs(data.actions).max(axis=1)
    if 1 + _ROUNDING < size.max() <= 1.5:
        rows = np.flatnonzero(size > 1 + _ROUNDING)
        yield Finding(
            "warning", "action-bounds",
            f"actions reach {size.max():g}, a little outside [-1, 1], at {data.at(rows)}",
            int(rows[0]),
            "clip them to [-1, 1], or give action_low and action_high if the bounds are wider",
        )  # fmt: skip


def _against_bounds(
    data: Columns, low: npt.NDArray[np.float32], high: npt.NDArray[np.float32]
) -> Iterator[Finding]:
    actions = data.actions
    smallest, largest = actions.min(axis=0), actions.max(axis=0)
    slack = 1e-5 * (high - low) + 1e-6  # the last digit of another precision
    unit = bool((smallest >= -1).all() and (largest <= 1).all())
    scale = "scale them to the bounds: `rl-training data convert --scale-actions`"
    outside = np.flatnonzero(((actions < low - slack) | (actions > high + slack)).any(axis=1))
    if len(outside):
        row = int(outside[0])
        column = int(((actions[row] < low - slack) | (actions[row] > high + slack)).argmax())
        yield Finding(
            "error", "action-bounds",
            f"action {actions[row, column]:g} in column {column} is outside "
            f"[{low[column]:g}, {high[column]:g}] at {data.at(outside)}", row,
            scale if unit else "clip the actions to the bounds, or correct the bounds",
        )  # fmt: skip
        return
    if looks_normalised(smallest, largest, low, high):
        column = int((high > 1.05).argmax())
        yield Finding(
            "warning", "normalised-actions",
            f"actions span [-1, 1], but the bounds of column {column} are "
            f"[{low[column]:g}, {high[column]:g}]: they look normalised", None, scale,
        )  # fmt: skip


def looks_normalised(
    smallest: npt.NDArray[np.floating],
    largest: npt.NDArray[np.floating],
    low: npt.NDArray[np.floating],
    high: npt.NDArray[np.floating],
) -> bool:
    """True if actions fill [-1, 1] where the bounds are wider: logged before they were rescaled."""
    unit = (smallest >= -1).all() and (largest <= 1).all()
    wider = (low < -1.05) & (high > 1.05)
    fills_unit = (largest > 0.9) & (smallest < -0.9)
    return bool(unit and wider.any() and fills_unit[wider].all())


def _saturation(data: Columns, bounds: Bounds, *, bounds_are_known: bool) -> Iterator[Finding]:
    at_bound = (data.actions == bounds[0]) | (data.actions == bounds[1])
    counts = at_bound.sum(axis=0) - (
        0 if bounds_are_known else 2
    )  # some value is always the extreme one
    counts[bounds[0] == bounds[1]] = 0
    column = int(counts.argmax())
    share = counts[column] / len(data.actions)
    if share > _SATURATED_SHARE:
        yield Finding(
            "info", "saturated-actions",
            f"{share:.0%} of the values of action column {column} lie exactly on "
            f"{'a bound' if bounds_are_known else 'its smallest or largest value'}",
            int(at_bound[:, column].argmax()),
            "expected of a clipped or bang-bang policy, but Gaussian policies fit it badly: "
            "prefer a deterministic one (TD3+BC, ReBRAC)",
        )  # fmt: skip
