"""Functions on runs and checkpoints: train, resume, evaluate, predict, and several seeds at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from rl_training.api.machine import default_jobs
from rl_training.config import ConfigError
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.experiment.manager import ExperimentManager
from rl_training.experiment.seed_processes import Report
from rl_training.runtime.assemble import new_run
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.commands import (
    evaluate_checkpoint,
    open_online,
    open_run,
    predict_checkpoint,
)
from rl_training.runtime.config.train_config import TrainConfig
from rl_training.runtime.loop.progress import ProgressCallback
from rl_training.runtime.run import Run
from rl_training.runtime.trainer import TrainResult

evaluate = evaluate_checkpoint
predict = predict_checkpoint
summarize_results = ExperimentManager.summary


def train(
    config: TrainConfig,
    *,
    callbacks: Iterable[Callback] = (),
    dataset: TransitionDataset | None = None,
    progress_bar: bool = False,
) -> TrainResult:
    """Train from the beginning, into a new run directory."""
    return _execute(new_run(config, callbacks=callbacks, dataset=dataset), progress_bar)


def train_seeds(
    config: TrainConfig,
    seeds: Sequence[int],
    *,
    jobs: int | None = None,
    plugins: Sequence[str] = (),
    progress_bar: bool = False,
    report: Report = lambda *_: None,
) -> list[TrainResult]:
    """Train one configuration with several seeds, `jobs` at a time, each in its own process.

    With one job, or one seed, training happens in this process, and `progress_bar` shows it.
    Otherwise `report(seed, message)` is told how far each seed is. `jobs` defaults to the cores
    that this process may use.
    """
    return ExperimentManager(config).run(
        seeds,
        callbacks=lambda seeded: _progress(seeded, progress_bar),
        jobs=default_jobs() if jobs is None else jobs,
        plugins=plugins,
        report=report,
    )


def resume(
    path: str | Path,
    *,
    total_timesteps: int | None = None,
    ignore_stop: bool = False,
    callbacks: Iterable[Callback] = (),
    dataset: TransitionDataset | None = None,
    online: bool = False,
    env_id: str | None = None,
    progress_bar: bool = False,
) -> TrainResult:
    """Go on from a checkpoint, exactly as if the run had never been interrupted.

    With `online` an offline run is fine-tuned in an environment for `total_timesteps` steps, as a
    new run.
    """
    if online:
        run = open_online(
            path, total_timesteps, env_id=env_id, callbacks=callbacks, dataset=dataset
        )
        return _execute(run, progress_bar)
    if env_id is not None:
        raise ConfigError("--env is for --online: a run goes on in its own environment")
    opened = open_run(
        path,
        total_timesteps=total_timesteps,
        ignore_stop=ignore_stop,
        callbacks=callbacks,
        dataset=dataset,
    )
    return opened if isinstance(opened, TrainResult) else _execute(opened, progress_bar)


def _execute(run: Run, progress_bar: bool) -> TrainResult:
    run.user_callbacks = [*run.user_callbacks, *_progress(run.config, progress_bar)]
    return run.execute()


def _progress(config: TrainConfig, wanted: bool) -> list[Callback]:
    return [ProgressCallback(config.budget)] if wanted else []
