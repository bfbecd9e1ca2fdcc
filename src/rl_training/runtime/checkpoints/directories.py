"""Checkpoint directories of a run: found, pointed to, replaced, and mended after a crash."""

from __future__ import annotations

import logging
import re
import shutil
from pathlib import Path

from rl_training.config import CheckpointError, packaged_configs
from rl_training.runs.layout import (
    CHECKPOINTS,
    CONFIG,
    MANIFEST,
    STEP_PREFIX,
    read_step,
    runs_in,
    step_directories,
)
from rl_training.runs.placing import point

log = logging.getLogger("rl_training")
LAST, BEST = "last", "best"
# what a save that was cut short leaves behind; nothing else is ever deleted
_LEFTOVER = re.compile(r"\.(step_\d+|last|best)\.\d+\.(tmp|old)")


def mend(checkpoints: Path) -> None:
    """Undo what a crash left half done: bring back a step, delete temporary files, set `last`.

    Only the process that holds the lock of the run may do this.
    """
    for path in sorted(checkpoints.glob(".*")):
        leftover = _LEFTOVER.fullmatch(path.name)
        if leftover is None:
            continue
        step = checkpoints / leftover[1]
        is_directory = path.is_dir() and not path.is_symlink()
        if leftover[2] == "old" and is_directory and not step.exists():
            path.rename(step)
        elif is_directory:
            shutil.rmtree(path)
        else:
            path.unlink()
    steps = step_directories(checkpoints)
    if steps and _target(checkpoints / LAST) != steps[-1].name:
        point(checkpoints, LAST, read_step(steps[-1]))


def set_aside(step_directory: Path) -> Path:
    """Rename a damaged checkpoint, so that its step can be saved again."""
    for number in range(1, 1000):
        suffix = "" if number == 1 else f"-{number}"
        aside = step_directory.with_name(f"damaged-{step_directory.name}{suffix}")
        if not aside.exists():
            return step_directory.rename(aside)
    raise CheckpointError(f"{step_directory} is damaged, and so are 999 others of its name")


def newest_run(path: str | Path) -> Path:
    """Resolve a directory of runs to its newest run; any other path stands for itself."""
    runs = runs_in(path)
    if not runs:
        return Path(path)
    if len(runs) > 1:
        log.info("%s has %d runs; taking the newest, %s", path, len(runs), runs[-1])
    return runs[-1]


def checkpoints_of(path: str | Path) -> list[Path]:
    """List all checkpoints of a run in order of step; a checkpoint stands for itself."""
    newest = find_checkpoint(path)
    if run_directory(Path(path)) is None:
        return [newest]
    return [step.absolute() for step in step_directories(newest.parent)]


def find_checkpoint(path: str | Path) -> Path:
    """Resolve a path to a checkpoint: itself, or the newest one of a run, or of the newest run in it."""
    target = Path(path)
    try:
        is_directory = target.is_dir()
    except (OSError, ValueError) as error:  # too long, or with a null character
        raise CheckpointError(f"{path!r} is not a path: {error}") from None
    if not is_directory:
        if target.is_symlink():
            raise CheckpointError(f"{path} points to a checkpoint that is gone")
        if target.exists():
            raise CheckpointError(f"{path} is a file; a checkpoint is a directory")
        if str(path) in packaged_configs():
            raise CheckpointError(
                f"{path} is a configuration, not a run; train it first: rl-training train {path}"
            )
        raise CheckpointError(f"{path}: no such file or directory")
    if (target / MANIFEST).exists():
        return _followed(target)
    target = newest_run(target)
    if any(target.glob("*.safetensors")):
        raise CheckpointError(f"checkpoint {path} is damaged: manifest.json is missing")
    run_dir = run_directory(target)
    # the newest, not `last`: a crash may have come between saving and pointing
    steps = step_directories((target if run_dir is None else run_dir) / CHECKPOINTS)
    if steps:
        return steps[-1].absolute()
    if (target / CHECKPOINTS).is_dir() or (target / CONFIG).exists() or run_dir is not None:
        raise CheckpointError(
            f"{target} has no checkpoint yet: start it again with `rl-training train`"
        )
    inner = next((entry for entry in sorted(target.iterdir()) if runs_in(entry)), None)
    hint = "" if inner is None else f"; {inner} has"
    raise CheckpointError(f"{path} is neither a checkpoint nor a run, and has no runs in it{hint}")


def run_directory(path: Path) -> Path | None:
    """Run that a path names as a whole: the directory, its `checkpoints`, or `checkpoints/last`."""
    absolute = path.absolute()
    if absolute.name == LAST and absolute.parent.name == CHECKPOINTS:
        return absolute.parent.parent
    if (absolute / MANIFEST).exists():
        return None
    if absolute.name == CHECKPOINTS:
        return absolute.parent
    return absolute if (absolute / CHECKPOINTS).is_dir() else None


def owner_of(checkpoint: Path) -> Path | None:
    """Run directory that a step checkpoint lies in; None for a copy elsewhere.

    `checkpoints` itself may be a link, because people keep it on another disk.
    """
    parent = checkpoint.absolute().parent
    is_step = checkpoint.name.startswith(STEP_PREFIX) and parent.name == CHECKPOINTS
    return parent.parent if is_step else None


def _followed(checkpoint: Path) -> Path:
    """Follow `last` and `best` to their step; a link of a run that leads out of it is refused."""
    absolute = checkpoint.absolute()
    if not absolute.is_symlink():
        return absolute
    if absolute.parent.name != CHECKPOINTS:
        return absolute.resolve()  # a link that the user made
    step = absolute.parent / _target(absolute)
    if step.parent != absolute.parent or step.is_symlink():
        raise CheckpointError(f"{checkpoint} is a link that leads out of its run, to {step}")
    return step


def _target(link: Path) -> str:
    return str(link.readlink()) if link.is_symlink() else ""
