"""What attacks by files share: their description, payloads, and things that are no regular files."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# makes the hostile file in a directory, and returns the path that the verbs are given
Builder = Callable[[Path, Path, Path], Path]


@dataclass(frozen=True)
class Attack:
    """A hostile file: `build(place, victim, canary)` makes it; FILE in a verb stands for its path."""

    name: str
    build: Builder
    verbs: Sequence[Sequence[str]]
    needs_run: bool = False  # `place` is a copy of a finished run


class Payload:
    """Creates the canary when it is unpickled."""

    def __init__(self, canary: Path) -> None:
        self.canary = str(canary)

    def __reduce__(self) -> Any:
        return (open, (self.canary, "w"))


def pickled(canary: Path) -> bytes:
    return pickle.dumps({"observations": Payload(canary)})


SPECIALS = (
    "link",
    "broken link",
    "own link",
    "fifo",
    "zero",
    "random",
    "directory",
    "sparse",
    "empty",
    "tty",
)


def put_special(path: Path, special: str, victim: Path) -> None:
    """Put something that is no intact regular file in the place of `path`."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    targets = {"link": str(victim), "broken link": str(victim) + "-gone", "own link": path.name,
               "zero": "/dev/zero", "random": "/dev/urandom", "tty": "/dev/tty"}  # fmt: skip
    if special in targets:
        path.symlink_to(targets[special])
    elif special == "fifo":
        os.mkfifo(path)
    elif special == "directory":
        path.mkdir()
    else:
        path.touch()
        if special == "sparse":
            os.truncate(path, 2**42)
