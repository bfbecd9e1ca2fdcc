"""Fits that off-policy evaluation makes as runs: an earlier one is taken or resumed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from rl_training.config import RunError
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.runs.layout import check_output_dir, finished_step
from rl_training.runs.matching import newest_run_of
from rl_training.runtime.commands import open_run
from rl_training.runtime.config.train_config import TrainConfig
from rl_training.runtime.loop.callback import Callback
from rl_training.runtime.loop.state import TrainResult
from rl_training.runtime.loop.stop_reasons import INTERRUPTED
from rl_training.runtime.run import Run


class FitInterruptedError(RunError):
    """A signal ended a fit, which the same call takes up again."""


def finished_run(
    config: TrainConfig,
    begin: Callable[[], Run],
    *,
    dataset: TransitionDataset,
    callbacks: Iterable[Callback] = (),
    progress_bar: bool = False,
) -> Path:
    """Return the directory of this configuration's finished run: an earlier, a resumed or a new one."""
    run_dir = newest_run_of(config.as_dict(), config.output_dir)
    if run_dir is None:
        check_output_dir(config.output_dir)
        run: Run | TrainResult = begin()
    elif finished_step(run_dir) == config.total_timesteps:
        return run_dir
    else:
        run = open_run(run_dir, callbacks=callbacks, dataset=dataset, accept_stop=True)
    result = run if isinstance(run, TrainResult) else run.execute(progress_bar=progress_bar)
    if result.stop_reason == INTERRUPTED:
        raise FitInterruptedError(f"interrupted; the same command goes on with {result.run_dir}")
    return result.run_dir
