"""Functions on runs and checkpoints: train, resume, evaluate, predict, and several seeds at once."""

from __future__ import annotations

from collections.abc import Sequence

from rl_training.api.machine import default_jobs
from rl_training.experiment.manager import ExperimentManager
from rl_training.experiment.seed_processes import Report
from rl_training.runtime.commands import resume, train
from rl_training.runtime.config.train_config import TrainConfig
from rl_training.runtime.scoring import evaluate_checkpoint, predict_checkpoint
from rl_training.runtime.trainer import TrainResult

__all__ = ["evaluate", "predict", "resume", "summarize_results", "train", "train_seeds"]

evaluate = evaluate_checkpoint
predict = predict_checkpoint
summarize_results = ExperimentManager.summary


def train_seeds(
    config: TrainConfig,
    seeds: Sequence[int],
    *,
    jobs: int | None = None,
    plugins: Sequence[str] = (),
    progress_bar: bool = False,
    auto_resume: bool = False,
    report: Report = lambda *_: None,
) -> list[TrainResult]:
    """Train one configuration with several seeds, `jobs` at a time, each in its own process.

    With one job, or one seed, training happens in this process, and `progress_bar` shows it.
    Otherwise `report(seed, message)` is told how far each seed is. `jobs` defaults to the cores
    that this process may use. With `auto_resume` a seed goes on where an earlier run of the same
    configuration was interrupted.
    """
    return ExperimentManager(config).run(
        seeds,
        progress_bar=progress_bar,
        auto_resume=auto_resume,
        jobs=default_jobs() if jobs is None else jobs,
        plugins=plugins,
        report=report,
    )
