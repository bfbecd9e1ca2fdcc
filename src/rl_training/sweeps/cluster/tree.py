"""Files of a run directory as they travel between machines: which ones, in which version, under safe names.

Hidden files, which are locks and what is being written, stay where they are, and so do links, except `last`
and `best`, which travel as the number of their step. A checkpoint travels only when it is complete.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from rl_training.config import OutputError
from rl_training.runs.layout import CHECKPOINTS, STEP_PREFIX, read_step, step_directories

POINTERS = ("last", "best")
# a leading dot means `..` or hidden, the others mean something to Windows
_TRAVELS = re.compile(r"[^.\\:\0][^\\:\0]*")
_STEP = re.compile(rf"{STEP_PREFIX}\d{{1,18}}")
Mark = tuple[int, int, int]  # version of a file: size, time of its last change, inode


class UnsafePathError(OutputError):
    """A path that does not stay inside its directory."""


@dataclass(frozen=True)
class RunTree:
    """Files of one run directory; paths are relative, with `/`."""

    files: dict[str, Mark] = field(default_factory=dict)  # outside of checkpoints
    steps: dict[int, dict[str, Mark]] = field(default_factory=dict)  # of complete checkpoints
    pointers: dict[str, int] = field(default_factory=dict)


def list_tree(run_dir: Path) -> RunTree:
    """List what travels; files that vanish meanwhile are left out."""
    checkpoints = run_dir / CHECKPOINTS
    if checkpoints.is_symlink():
        raise OutputError(
            f"{checkpoints} is a link, which `--storage returned` does not follow: use `--storage shared`"
        )
    # first the checkpoints: the metrics that one counts on are there by the time it is complete
    steps = {
        read_step(step): _files(run_dir, f"{CHECKPOINTS}/{step.name}/")
        for step in step_directories(checkpoints)
    }
    files = _files(run_dir, "", leave_out=CHECKPOINTS)
    pointers = {name: step for name in POINTERS if (step := _pointed(checkpoints / name)) in steps}
    return RunTree(files, steps, pointers)


def _files(run_dir: Path, prefix: str, leave_out: str = "") -> dict[str, Mark]:
    found: dict[str, Mark] = {}
    try:
        entries = list(os.scandir(run_dir / prefix))
    except OSError:  # gone, or another process removes it
        return found
    for entry in entries:
        if not _TRAVELS.fullmatch(entry.name) or entry.name == leave_out:
            continue
        try:
            facts = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue
        path = f"{prefix}{entry.name}"
        if stat.S_ISDIR(facts.st_mode):
            found |= _files(run_dir, f"{path}/")
        elif stat.S_ISREG(facts.st_mode):
            found[path] = (facts.st_size, facts.st_mtime_ns, facts.st_ino)
    return found


def _pointed(link: Path) -> int:
    """Return the step that `last` or `best` points to; -1 if it points elsewhere."""
    try:
        target = str(link.readlink())
    except OSError:
        return -1
    return read_step(Path(target)) if _STEP.fullmatch(target) else -1


def step_name(step: int) -> str:
    if type(step) is not int or not 0 <= step < 10**18:
        raise UnsafePathError(f"{step!r} is not a step")
    return f"{STEP_PREFIX}{step}"


def inside(run_dir: Path, relative: str) -> Path:
    """Return the path of a file of a run; one that leads out of it, by its name or by a link, is refused."""
    path = PurePosixPath(relative)
    proper = str(path) == relative and not path.is_absolute()
    if not proper or not path.parts or not all(map(_TRAVELS.fullmatch, path.parts)):
        raise UnsafePathError(f"{relative!r} is not a path inside a run directory")
    place = run_dir
    for part in path.parts:
        place = place / part
        if place.is_symlink():
            raise UnsafePathError(f"{place} is a link, which is not followed")
    return place
