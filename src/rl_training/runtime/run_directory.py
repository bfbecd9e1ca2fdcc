"""Directory of a run: a new one, or that of the checkpoint from which the run goes on."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_training.config import CheckpointError, OutputError
from rl_training.files import read_regular, write_bytes
from rl_training.runs.layout import (
    ARTIFACTS,
    CHECKPOINTS,
    CONFIG,
    EVALUATIONS,
    MAX_METRICS_BYTES,
    METRICS,
    RESULT,
    STEP_PREFIX,
    create_run_dir,
    disk_errors_named,
    read_step,
    step_directories,
)
from rl_training.runs.lock import RunLock
from rl_training.runs.metadata import note_resume, write_run_files
from rl_training.runs.placing import point
from rl_training.runtime.checkpoints.directories import (
    LAST,
    find_checkpoint,
    mend,
    newest_run,
    owner_of,
    run_directory,
    set_aside,
)
from rl_training.runtime.checkpoints.format import (
    Checkpoint,
    copy_checkpoint,
    read_checkpoint,
)
from rl_training.runtime.checkpoints.manifest import DamagedCheckpointError
from rl_training.runtime.config.train_config import TrainConfig
from rl_training.runtime.prepare import TrainingData

log = logging.getLogger("rl_training")


@dataclass(frozen=True)
class Claim:
    """Checkpoint to go on from. With a lock the run goes on in its directory, else in a new one."""

    checkpoint: Checkpoint
    lock: RunLock | None

    def release(self) -> None:
        if self.lock is not None:
            self.lock.release()


def claim(path: str | Path) -> Claim:
    """Choose the checkpoint that a resume starts from, and decide under the lock of its run.

    A path to a run means its newest intact checkpoint. A path to a checkpoint means that one; if its
    run has gone on since, that run stays as it is and a new one begins.
    """
    path = newest_run(path)
    named = run_directory(path)
    if named is not None:
        _refuse_checkpoints_of_another_run(named)
        lock = RunLock(named)
        with _released_after_error(lock):
            with disk_errors_named(named):
                mend(named / CHECKPOINTS)
            return Claim(_newest_intact(find_checkpoint(named)), lock)
    checkpoint = find_checkpoint(path)
    run_dir = owner_of(checkpoint)
    if run_dir is None or _has_gone_on(run_dir, checkpoint):
        return Claim(read_checkpoint(checkpoint), None)
    _refuse_checkpoints_of_another_run(run_dir)
    lock = RunLock(run_dir)
    with _released_after_error(lock):
        with disk_errors_named(run_dir):
            mend(run_dir / CHECKPOINTS)
        if not _has_gone_on(run_dir, checkpoint):
            return Claim(read_checkpoint(checkpoint), lock)
    lock.release()  # a checkpoint came between looking and locking
    return Claim(read_checkpoint(checkpoint), None)


def _refuse_checkpoints_of_another_run(run_dir: Path) -> None:
    """Refuse a `checkpoints` link into another run: this lock does not protect that run.

    A link to another disk is fine.
    """
    target = (run_dir / CHECKPOINTS).resolve()
    if target.parent != run_dir.resolve() and (target.parent / CONFIG).exists():
        raise CheckpointError(
            f"{run_dir / CHECKPOINTS} is a link to those of another run, {target.parent}: resume that one"
        )


@contextmanager
def _released_after_error(lock: RunLock) -> Iterator[None]:
    try:
        yield
    except BaseException:
        lock.release()
        raise


def _has_gone_on(run_dir: Path, checkpoint: Path) -> bool:
    steps = step_directories(run_dir / CHECKPOINTS)
    return bool(steps) and read_step(steps[-1]) > read_step(checkpoint)


def _newest_intact(newest: Path) -> Checkpoint:
    """Read the newest checkpoint of a run, or the one before it if that is damaged, and so on."""
    errors: dict[Path, DamagedCheckpointError] = {}
    for path in reversed(step_directories(newest.parent)):
        try:
            checkpoint = read_checkpoint(path)
        except DamagedCheckpointError as error:
            errors[path] = error
            continue
        for broken, damage in errors.items():
            aside = set_aside(broken)
            log.warning(
                "%s\ngoing on from step %d instead: %d steps are trained again; the damaged one is "
                "now %s",
                str(damage).split("; an earlier one")[0],
                read_step(path), read_step(broken) - read_step(path), aside,
            )  # fmt: skip
        if errors:
            point(newest.parent, LAST, read_step(path))
        return checkpoint
    raise errors[newest]


@contextmanager
def open_run_directory(
    config: TrainConfig,
    data: TrainingData,
    origin: Checkpoint | None,
    *,
    lock: RunLock | None,
    made_progress: Callable[[], bool],
    directory: Path | None = None,
) -> Iterator[Path]:
    """Lock the directory of a run, a new one without `lock`, and describe the run in it.

    `origin` is the checkpoint that the run goes on from. A new directory, called `directory` if that is given,
    is removed after an error that came before anything was learned.
    """
    is_new = lock is None
    if lock is not None:
        path = lock.run_dir
    else:
        path = _new_directory(config, origin) if directory is None else _made(directory)
    held = lock
    try:
        held = held or RunLock(path)
        with held, disk_errors_named(path):
            if is_new and directory is not None:
                _clear(path)
            if origin is not None and not is_new:
                (path / RESULT).unlink(missing_ok=True)
                note_resume(path, config.as_dict(), origin.path)
            else:
                _describe(path, config, data, origin)
            yield path
    except BaseException:
        is_ours = is_new and (held is not None or directory is None)
        if is_ours and not made_progress() and not step_directories(path / CHECKPOINTS):
            shutil.rmtree(path, ignore_errors=True)
        raise


def _new_directory(config: TrainConfig, origin: Checkpoint | None) -> Path:
    parent: str | Path = config.output_dir
    if origin is not None and origin.run_dir is not None:
        parent = origin.run_dir.parent
    path = create_run_dir(parent, config.algo, config.env_id, config.seed)
    if origin is not None:
        log.info("%s stays as it is; going on in %s", origin.path, path)
    return path


def _made(directory: Path) -> Path:
    if directory.is_symlink():
        raise OutputError(
            f"{directory} is a link: a run that begins there could overwrite anything"
        )
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot create {directory}: {error.strerror}") from None
    return directory


def _clear(path: Path) -> None:
    """Remove what a process left that was killed before its first checkpoint."""
    if step_directories(path / CHECKPOINTS):
        raise OutputError(f"{path} holds a run with checkpoints: go on with it instead")
    for name in ARTIFACTS:
        entry = path / name
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink(missing_ok=True)


def _describe(
    path: Path, config: TrainConfig, data: TrainingData, origin: Checkpoint | None
) -> None:
    facts: dict[str, Any] = {}
    if data.dataset is not None:
        raw = data.dataset.raw
        facts["dataset"] = {**raw.describe(), "sha256": raw.sha256}
        if "validation" in data.source:
            facts["dataset"]["validation"] = data.source["validation"]
    if origin is not None:
        facts["branched_from"] = str(origin.path)
        _copy_history(origin, path)
    write_run_files(path, config.as_dict(), facts)


def _copy_history(origin: Checkpoint, run_dir: Path) -> None:
    """Give a branch the metrics and the best checkpoint that it has behind it."""
    if origin.run_dir is None:
        return
    for name in (METRICS, EVALUATIONS):
        with suppress(FileNotFoundError):
            content = read_regular(origin.run_dir / name, limit=MAX_METRICS_BYTES)
            write_bytes(run_dir / name, content)
    saved = origin.manifest["callbacks"].get("CheckpointCallback.0", {})
    best = f"{STEP_PREFIX}{saved.get('best_step')}"
    if origin.run_dir / CHECKPOINTS / best in step_directories(origin.run_dir / CHECKPOINTS):
        copy_checkpoint(origin.run_dir / CHECKPOINTS / best, run_dir / CHECKPOINTS / best)
