"""Verdicts on injected faults, counted; every number of the table comes from here."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any


class Verdict(Enum):
    """Outcome of one fault; the first three are what is promised."""

    EQUAL = "equal"  # went on, and the result has the bits of the one without a fault
    SURVIVED = "survived"  # went on with a value, where there is no twin to compare with
    REFUSED = "refused"  # one of the package's own errors
    EXECUTED = "executed"  # a payload ran
    FOREIGN = "foreign exception"  # an exception that is not one of the package's own, or a crash
    HANG = "hang"
    NOT_EQUAL = "not equal"  # went on silently with another result
    OTHER = "other"  # other harm, which the note names


PROMISED = (Verdict.EQUAL, Verdict.SURVIVED, Verdict.REFUSED)


@dataclass(frozen=True)
class Failure:
    """One broken promise, with the command that repeats it."""

    kind: str
    case: str
    verdict: str
    note: str
    command: str


@dataclass
class Tally:
    """Faults that one case injected, by verdict, and notes on the broken promises among them."""

    counts: Counter[Verdict] = field(default_factory=Counter)
    broken: list[tuple[Verdict, str]] = field(default_factory=list)

    @classmethod
    def of(cls, verdict: Verdict, note: str = "", injected: int = 1) -> Tally:
        tally = cls()
        tally.add(verdict, note, injected)
        return tally

    def add(self, verdict: Verdict, note: str = "", injected: int = 1) -> None:
        self.counts[verdict] += injected
        if verdict not in PROMISED and injected:
            self.broken.append((verdict, note))

    @property
    def injected(self) -> int:
        return sum(self.counts.values())

    def merge(self, other: Tally) -> None:
        self.counts += other.counts
        self.broken += other.broken

    def to_json(self) -> str:
        return json.dumps(
            {
                "counts": {verdict.value: count for verdict, count in self.counts.items()},
                "broken": [(verdict.value, note) for verdict, note in self.broken],
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Tally:
        values: dict[str, Any] = json.loads(text)
        counts = Counter({Verdict(name): count for name, count in values["counts"].items()})
        return cls(counts, [(Verdict(name), note) for name, note in values["broken"]])


@dataclass(frozen=True)
class Case:
    """One attack: `run` is called in a process of its own, with an empty directory."""

    name: str
    run: Callable[[Path], Tally]
    timeout: float = 120.0  # seconds until the attack as a whole counts as a hang
