"""Record of a search over configurations, `tune.json`: its settings, its trials, and how it ended. Needs no torch.

The record is data of a file that may come from anywhere: whatever has another form than we write is refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast, get_args

from rl_training.config import CheckpointError
from rl_training.files import read_json, write_json

RECORD = "tune.json"
BEST = "best.yaml"
JOURNAL = "optuna.journal"
SCHEMA = 1
MAX_TRIALS = 100_000

Mode = Literal["max", "min"]
TrialState = Literal["waiting", "complete", "pruned", "failed"]


@dataclass(frozen=True)
class SearchTrial:
    """One trial: a point of the space, and the scores of its seeds.

    Attributes:
        number: counts from 0; trial 0 is the configuration as it was given.
        params: the point as Optuna knows it; empty if it lies outside of the space.
        values: the point as configurations take it, by key.
        state: `waiting` until its round has ended.
        value: interquartile mean over seeds, of the last policies or, if pruned, at the last step.
        seeds: score of every seed.
        steps: interquartile means at the steps at which it could be pruned.
        reason: why it failed.
        runs: names of its run directories.
    """

    number: int
    params: Mapping[str, Any]
    values: Mapping[str, Any]
    state: TrialState = "waiting"
    value: float | None = None
    seeds: Mapping[int, float] = field(default_factory=dict)
    steps: Mapping[int, float] = field(default_factory=dict)
    reason: str = ""
    runs: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "params": dict(self.params),
            "values": dict(self.values),
            "state": self.state,
            "value": self.value,
            "seeds": {str(seed): value for seed, value in self.seeds.items()},
            "steps": {str(step): value for step, value in self.steps.items()},
            "reason": self.reason,
            "runs": list(self.runs),
        }


@dataclass(frozen=True)
class FreshScore:
    """Score of the best configuration on seeds that the search did not use."""

    number: int  # of the trial
    seeds: Mapping[int, float]
    failed: Mapping[int, str]  # reasons by seed
    iqm: float | None
    low: float | None  # of the bootstrap interval of the interquartile mean
    high: float | None
    mean: float | None
    confidence: float

    def as_dict(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "seeds": {str(seed): value for seed, value in self.seeds.items()},
            "failed": {str(seed): reason for seed, reason in self.failed.items()},
            "iqm": self.iqm,
            "low": self.low,
            "high": self.high,
            "mean": self.mean,
            "confidence": self.confidence,
        }


@dataclass(frozen=True)
class SearchRecord:
    """Everything that a search has written down.

    Attributes:
        settings: options of the search, which never change once it has begun.
        versions: of the packages that suggest.
        wanted: number of trials that were asked for last.
        trials: in the order of their numbers.
        fresh: score of the best configuration on fresh seeds; None before the end.
        importance: share of each option in what made the best trials good.
        importance_note: why there is none, or of which options it is.
    """

    settings: Mapping[str, Any]
    versions: Mapping[str, str]
    wanted: int
    trials: tuple[SearchTrial, ...] = ()
    fresh: FreshScore | None = None
    importance: Mapping[str, float] = field(default_factory=dict)
    importance_note: str = ""

    @property
    def metric(self) -> str:
        return str(self.settings["metric"])

    @property
    def mode(self) -> Mode:
        return cast(Mode, self.settings["mode"])

    @property
    def best(self) -> SearchTrial | None:
        """Return the complete trial with the best value, the first of equal ones."""
        complete = [trial for trial in self.trials if trial.state == "complete"]
        sign = -1.0 if self.mode == "max" else 1.0
        return min(complete, key=lambda t: (sign * cast(float, t.value), t.number), default=None)

    def as_dict(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "settings": dict(self.settings),
            "versions": dict(self.versions),
            "wanted": self.wanted,
            "trials": [trial.as_dict() for trial in self.trials],
            "fresh": None if self.fresh is None else self.fresh.as_dict(),
            "importance": dict(self.importance),
            "importance_note": self.importance_note,
        }

    def write(self, directory: Path) -> None:
        write_json(directory / RECORD, self.as_dict())


def is_search(directory: str | Path) -> bool:
    """Tell a directory that holds a search."""
    return (Path(directory) / RECORD).is_file()


def read_search(directory: str | Path) -> SearchRecord:
    """Read the record of a search; a `CheckpointError` says what is wrong with it."""
    path = Path(directory) / RECORD
    try:
        values = read_json(path)
    except FileNotFoundError:
        raise CheckpointError(f"{directory} is no search: it has no {RECORD}") from None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError:
        raise CheckpointError(f"{path} is damaged: it is not JSON") from None
    try:
        return _record(values)
    except _DamagedError as error:
        raise CheckpointError(f"{path} is damaged: {error}") from None


class _DamagedError(Exception):
    """Part of a record that has another form than we write."""


def _record(values: Any) -> SearchRecord:
    fields = _mapping(values, "it is no mapping")
    if fields.get("schema") != SCHEMA:
        raise _DamagedError(f"its schema is {str(fields.get('schema'))[:20]!r}, not {SCHEMA}")
    settings = _mapping(fields.get("settings"), "it has no settings")
    if not isinstance(settings.get("metric"), str) or settings.get("mode") not in get_args(Mode):
        raise _DamagedError("its settings name no metric")
    listed = fields.get("trials")
    if not isinstance(listed, list) or len(listed) > MAX_TRIALS:
        raise _DamagedError("it does not list trials")
    trials = tuple(_trial(number, entry) for number, entry in enumerate(listed))
    wanted = fields.get("wanted")
    if type(wanted) is not int or not 1 <= wanted <= MAX_TRIALS:
        raise _DamagedError("it does not say how many trials are wanted")
    fresh = fields.get("fresh")
    note = fields.get("importance_note")
    return SearchRecord(
        settings,
        _texts(fields.get("versions"), "versions"),
        wanted,
        trials,
        None if fresh is None else _fresh(fresh, len(trials)),
        _numbers(fields.get("importance"), "importance"),
        note if isinstance(note, str) else "",
    )


def _trial(number: int, entry: Any) -> SearchTrial:
    what = f"trial {number}"
    fields = _mapping(entry, f"{what} is no mapping")
    state, runs, reason = fields.get("state"), fields.get("runs"), fields.get("reason")
    if fields.get("number") != number or state not in get_args(TrialState):
        raise _DamagedError(f"{what} has no number or state")
    if not isinstance(runs, list) or not all(isinstance(n, str) and _is_name(n) for n in runs):
        raise _DamagedError(f"{what} has runs that are no names")
    value = fields.get("value")
    if state in ("complete", "pruned"):
        value = _number(value, what)
    return SearchTrial(
        number,
        _mapping(fields.get("params"), f"{what} has no params"),
        _mapping(fields.get("values"), f"{what} has no values"),
        cast(TrialState, state),
        value if state in ("complete", "pruned") else None,
        _by_number(fields.get("seeds"), what),
        _by_number(fields.get("steps"), what),
        reason if isinstance(reason, str) else "",
        tuple(runs),
    )


def _fresh(entry: Any, trials: int) -> FreshScore:
    fields = _mapping(entry, "its fresh score is no mapping")
    number = fields.get("number")
    if type(number) is not int or not 0 <= number < trials:
        raise _DamagedError("its fresh score is of no trial")
    failed = {_whole(k, "fresh"): v for k, v in _texts(fields.get("failed"), "fresh").items()}
    iqm, low, high, mean = (
        None if fields.get(name) is None else _number(fields[name], "its fresh score")
        for name in ("iqm", "low", "high", "mean")
    )
    confidence = _number(fields.get("confidence"), "its fresh score")
    seeds = _by_number(fields.get("seeds"), "its fresh score")
    return FreshScore(number, seeds, failed, iqm, low, high, mean, confidence)


def _is_name(text: str) -> bool:
    return bool(text) and Path(text).name == text and text not in (".", "..")


def _mapping(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _DamagedError(what)
    return value


def _number(value: Any, what: str) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise _DamagedError(f"{what} has a value that is no number")
    return float(value)


def _numbers(value: Any, what: str) -> dict[str, float]:
    fields = _mapping(value, f"its {what} is no mapping")
    return {key: _number(entry, f"its {what}") for key, entry in fields.items()}


def _texts(value: Any, what: str) -> dict[str, str]:
    fields = _mapping(value, f"its {what} is no mapping")
    if not all(isinstance(entry, str) for entry in fields.values()):
        raise _DamagedError(f"its {what} holds something else than text")
    return fields


def _by_number(value: Any, what: str) -> dict[int, float]:
    fields = _mapping(value, f"{what} has no scores")
    return {_whole(key, what): _number(entry, what) for key, entry in fields.items()}


def _whole(text: str, what: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise _DamagedError(f"{what} has {text[:20]!r} where a whole number belongs")
    return int(text)


def values_of(trials: Sequence[SearchTrial]) -> list[str]:
    """List the keys that trials set, in the order of their first occurrence."""
    return list(dict.fromkeys(key for trial in trials for key in trial.values))
