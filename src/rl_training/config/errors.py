"""Errors users see, and the problems of a configuration.

RLTrainingError
├── ConfigError        a key, type or value is wrong: change the configuration
├── DatasetError       the data is missing, damaged or does not fit: change the data
├── EnvError           the environment or one of its spaces is not usable: change the environment
├── CheckpointError    a checkpoint is missing, damaged or of another kind: choose another
├── OutputError        a file or directory cannot be written: choose another path
├── MissingExtraError  an optional dependency is not installed: run the pip line it names
└── RunError           training itself failed: the run directory holds what was saved
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class RLTrainingError(Exception):
    """Base of every error that this package raises on purpose."""


class DatasetError(RLTrainingError, ValueError):
    pass


class EnvError(RLTrainingError, ValueError):
    pass


class CheckpointError(RLTrainingError, ValueError):
    pass


class OutputError(RLTrainingError, OSError):
    pass


class MissingExtraError(RLTrainingError, ImportError):
    def __init__(self, what: str, package: str, extra: str) -> None:
        super().__init__(f"{what} needs {package}: pip install 'rl-training[{extra}]'")


class RunError(RLTrainingError, RuntimeError):
    pass


class Problem(NamedTuple):
    """One thing wrong with a configuration, and the path of its key."""

    path: tuple[str, ...]
    message: str

    def under(self, *prefix: str) -> Problem:
        return Problem((*prefix, *self.path), self.message)

    def __str__(self) -> str:
        return f"{'.'.join(self.path)}: {self.message}" if self.path else self.message


_SHOWN_PROBLEMS = 20
_SHOWN_CHARACTERS = 500  # of one problem, which may quote a key or a value of any length


class ConfigError(RLTrainingError, ValueError):
    """All problems of one configuration; the message shows the first ones."""

    def __init__(self, problems: str | Sequence[Problem]) -> None:
        if isinstance(problems, str):
            problems = [Problem((), problems)]
        self.problems = tuple(problems)
        lines = [_cut(str(problem)) for problem in self.problems[:_SHOWN_PROBLEMS]]
        if len(self.problems) > _SHOWN_PROBLEMS:
            lines.append(f"and {len(self.problems) - _SHOWN_PROBLEMS} more problems")
        super().__init__("\n".join(lines))


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def suggest(word: str, candidates: Iterable[str]) -> str:
    """Return `; did you mean 'expectile'?` for the nearest candidate, or an empty string."""
    near = difflib.get_close_matches(word.lower(), sorted(candidates), n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else ""


def unknown_key(key: str, candidates: Iterable[str]) -> str:
    names = sorted(candidates)
    listed = ", ".join(names) if len(names) <= 20 else "see `rl-training explain ALGORITHM`"
    return f"unknown key{suggest(key, names) or f' (known: {listed})'}"
