"""Modules of the user: found last, and only when one is asked for.

The working directory may hold a stranger's files. A `torch.py` in it must not be taken for PyTorch, so it comes
after everything that is installed, and is not searched at all unless the user names a module.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import parent_process
from pathlib import Path

from rl_training.config import OutputError

_SAFE_PATH = "PYTHONSAFEPATH"
_OURS = "rl-training"  # any text counts; this one tells it from the user's own setting


def working_directory() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise OutputError("the current directory does not exist any more") from None


def search_working_directory() -> None:
    """Let modules of the working directory be imported from now on, unless an installed one has the name."""
    here = str(working_directory())
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)


@contextmanager
def starting_processes() -> Iterator[None]:
    """Context in which to start Python processes.

    Their interpreters begin with `python -c`, for which Python searches the working directory first, and get our
    `sys.path` only later. From Python 3.11 on an environment variable prevents it.
    """
    if _SAFE_PATH in os.environ:
        yield
        return
    os.environ[_SAFE_PATH] = _OURS
    try:
        yield
    finally:
        os.environ.pop(_SAFE_PATH, None)


def forget_safe_path() -> None:
    """Undo `starting_processes` in a process that was started, for programs that its environments run."""
    if parent_process() is not None:
        drop_safe_path()


def drop_safe_path() -> None:
    """Undo `starting_processes` in this process, which one of ours has started."""
    if os.environ.get(_SAFE_PATH) == _OURS:
        del os.environ[_SAFE_PATH]
