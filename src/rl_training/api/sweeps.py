"""Functions on many runs: several seeds, sweeps from files, going on with them."""

from __future__ import annotations

from collections.abc import Sequence

from rl_training.api.machine import default_jobs
from rl_training.runtime.config.train_config import TrainConfig
from rl_training.runtime.trainer import TrainResult
from rl_training.sweeps.driver import Report
from rl_training.sweeps.running import RunOptions
from rl_training.sweeps.seeds import run_seeds, seed_trials

__all__ = ["train_seeds"]


def train_seeds(
    config: TrainConfig,
    seeds: Sequence[int],
    *,
    jobs: int | None = None,
    retries: int = 0,
    plugins: Sequence[str] = (),
    auto_resume: bool = False,
    report: Report = lambda *_: None,
) -> list[TrainResult]:
    """Train one configuration with several seeds, `jobs` at a time, each in its own process.

    `report` is called with the name of a run's directory and its status whenever that has changed. `jobs`
    defaults to the cores that this process may use. With `auto_resume` a seed goes on where an earlier run of
    the same configuration was interrupted.
    """
    trials = seed_trials(config, seeds, auto_resume=auto_resume)
    jobs = default_jobs() if jobs is None else jobs
    return run_seeds(trials, RunOptions(jobs, retries, plugins=tuple(plugins), report=report))
