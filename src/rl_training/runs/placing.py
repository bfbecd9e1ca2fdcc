"""Checkpoint directories put in place, and `last` and `best` pointed to them, so that a crash does no harm."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from rl_training.files import sync_directory
from rl_training.runs.layout import STEP_PREFIX


def point(checkpoints: Path, name: str, step: int) -> None:
    """Let `last` or `best` point to a step directory, atomically."""
    aside = checkpoints / f".{name}.{os.getpid()}.tmp"
    aside.unlink(missing_ok=True)
    aside.symlink_to(f"{STEP_PREFIX}{step}")
    link = checkpoints / name
    if link.is_dir() and not link.is_symlink():
        shutil.rmtree(link)  # a copy of the run that turned links into directories
    aside.replace(link)


def put_in_place(aside: Path, directory: Path) -> None:
    """Rename a complete directory to its name; one of that name goes only after it is there.

    A crash between the two renames leaves the former under a name that `mend` knows.
    """
    former = directory.with_name(f".{directory.name}.{os.getpid()}.old")
    if os.path.lexists(directory):  # also a link that leads nowhere
        directory.rename(former)
    aside.rename(directory)
    sync_directory(directory.parent)
    if former.is_dir() and not former.is_symlink():
        shutil.rmtree(former, ignore_errors=True)
    else:
        former.unlink(missing_ok=True)
