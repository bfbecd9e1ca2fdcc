"""Directory of a run: a new one, or that of the checkpoint from which the run goes on."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rl_training.runs.layout import RESULT, create_run_dir, disk_errors_named
from rl_training.runs.lock import locked
from rl_training.runs.metadata import note_resume, write_run_files
from rl_training.runtime.checkpoints.format import (
    STEP_PREFIX,
    Checkpoint,
    read_step,
    remove_leftovers,
    step_directories,
)
from rl_training.runtime.config.train_config import TrainConfig
from rl_training.runtime.prepare import TrainingData

log = logging.getLogger("rl_training")


@contextmanager
def open_run_directory(
    config: TrainConfig, data: TrainingData, origin: Checkpoint | None, *, same_run: bool
) -> Iterator[Path]:
    """Choose the directory, lock it and write the files that describe the run.

    `origin` is the checkpoint that a run goes on from, `same_run` whether as that run or as another
    that begins with its networks. A new directory without a checkpoint is removed after an error.
    """
    path = _directory_to_resume(origin) if origin is not None and same_run else None
    is_new = path is None
    if path is None:
        path = _new_directory(config, origin)
    try:
        with locked(path), disk_errors_named(path):
            if origin is not None and not is_new:
                remove_leftovers(path / "checkpoints")
                (path / RESULT).unlink(missing_ok=True)
                note_resume(path, config.as_dict(), origin.path)
            else:
                _describe(path, config, data, origin)
            yield path
    except BaseException:
        if is_new and not step_directories(path / "checkpoints"):
            shutil.rmtree(path)
        raise


def _directory_to_resume(origin: Checkpoint) -> Path | None:
    """Return the checkpoint's run, unless that run has gone on since: it stays as it is then."""
    if origin.run_dir is None:
        return None
    steps = step_directories(origin.run_dir / "checkpoints")
    return origin.run_dir if steps and read_step(steps[-1]) <= origin.step else None


def _new_directory(config: TrainConfig, origin: Checkpoint | None) -> Path:
    parent: str | Path = config.output_dir
    if origin is not None and origin.run_dir is not None:
        parent = origin.run_dir.parent
    path = create_run_dir(parent, config.algo, config.env_id, config.seed)
    if origin is not None:
        log.info("%s stays as it is; going on in %s", origin.path, path)
    return path


def _describe(
    path: Path, config: TrainConfig, data: TrainingData, origin: Checkpoint | None
) -> None:
    facts: dict[str, Any] = {}
    if data.dataset is not None:
        raw = data.dataset.raw
        facts["dataset"] = {**raw.describe(), "sha256": raw.sha256}
    if origin is not None:
        facts["branched_from"] = str(origin.path)
        _copy_history(origin, path)
    write_run_files(path, config.as_dict(), facts)


def _copy_history(origin: Checkpoint, run_dir: Path) -> None:
    """Give a branch the metrics and the best checkpoint that it has behind it."""
    if origin.run_dir is None:
        return
    for name in ("metrics.jsonl", "evaluations.npz"):
        if (origin.run_dir / name).exists():
            shutil.copy(origin.run_dir / name, run_dir)
    saved = origin.manifest["callbacks"].get("CheckpointCallback.0", {})
    best = f"{STEP_PREFIX}{saved.get('best_step')}"
    if (origin.run_dir / "checkpoints" / best).is_dir():
        shutil.copytree(origin.run_dir / "checkpoints" / best, run_dir / "checkpoints" / best)
