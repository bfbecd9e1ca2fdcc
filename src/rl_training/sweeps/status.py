"""Status of a trial: a small file that its process writes and everyone else reads."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from rl_training.files import read_json

# `stopped` is never written: the process is gone without a last word, as others find out
State = Literal[
    "waiting", "starting", "running", "paused", "interrupted", "failed", "ended", "stopped"
]
FINAL: tuple[State, ...] = ("paused", "interrupted", "failed", "ended")
MAX_WARNINGS = 20
_MAX_TEXT = 4_000  # characters of one error or warning, which may quote anything
_MAX_BYTES = 1 << 20
_LARGEST = 2**53  # number in a status; arithmetic with larger ones may fail


@dataclass(frozen=True)
class TrialStatus:
    """Position of a trial, as its process knew it at `updated`."""

    state: State = "waiting"
    attempt: int = 0  # counts the processes that have been started for it
    host: str = ""
    process: int = 0
    step: int = 0
    total: int = 0
    updates_per_second: float = 0.0
    steps_per_second: float = 0.0
    score: str = ""  # of the last evaluation, in words
    error: str = ""
    is_user_error: bool = False  # another attempt would fail the same way
    warnings: tuple[str, ...] = ()
    stop_reason: str | None = None
    updated: float = 0.0  # seconds since the epoch

    @property
    def seconds_left(self) -> float | None:
        """Return the time to the end of the budget at the speed of this process; None before it is known."""
        if self.state != "running" or self.steps_per_second <= 0:
            return None
        return max(0, self.total - self.step) / self.steps_per_second


def write_status(path: Path, status: TrialStatus) -> None:
    """Replace the file in one step, without waiting for the disk: after a power cut it has no use.

    A full disk is no error here: the next status may find room, and the run itself tells if it does not.
    """
    status = replace(
        status, error=_cut(status.error), warnings=tuple(map(_cut, status.warnings[:MAX_WARNINGS]))
    )
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        aside.write_text(json.dumps(asdict(status)), encoding="utf-8")
        aside.replace(path)
    except OSError:
        with suppress(OSError):
            aside.unlink(missing_ok=True)


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}..."


def read_status(path: Path) -> TrialStatus:
    """Read a status; what is missing or damaged gives that of a trial that waits."""
    try:
        values = read_json(path, limit=_MAX_BYTES)
    except (OSError, ValueError):
        return TrialStatus()
    return parse_status(values) if isinstance(values, Mapping) else TrialStatus()


def parse_status(values: Mapping[str, Any]) -> TrialStatus:
    """Take the entries that have the type of the field, and the defaults for the others."""
    default = TrialStatus()
    taken: dict[str, Any] = {}
    for entry in fields(TrialStatus):
        value = values.get(entry.name)
        if entry.name == "warnings" and isinstance(value, list):
            taken["warnings"] = tuple(text for text in value if isinstance(text, str))[
                :MAX_WARNINGS
            ]
        elif _fits(entry.name, value, getattr(default, entry.name)):
            taken[entry.name] = value
    return replace(default, **taken)


def _fits(name: str, value: Any, default: Any) -> bool:
    if name == "state":
        return value in ("waiting", "starting", "running", *FINAL)
    if default is None:
        return isinstance(value, str)
    if isinstance(default, float):
        return type(value) in (int, float) and 0 <= value <= _LARGEST  # NaN is not
    return type(value) is type(default) and (type(value) is not int or 0 <= value <= _LARGEST)
