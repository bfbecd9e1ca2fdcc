"""Several seeds of one configuration: a sweep with one axis, whose runs lie beside any others."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from rl_training.config import ConfigError, RunError
from rl_training.runs.layout import check_output_dir, run_name
from rl_training.runs.matching import newest_run_of
from rl_training.runtime.config.train_config import TrainConfig
from rl_training.runtime.trainer import TrainResult
from rl_training.runtime.trust import trust
from rl_training.sweeps.description import Trial
from rl_training.sweeps.directory import SweepDirectory
from rl_training.sweeps.driver import Outcome, driving
from rl_training.sweeps.running import RunOptions, check_problems, make_task

log = logging.getLogger("rl_training")


class SeedsFailedError(RunError):
    """Some seeds failed; `results` are those of the others."""

    def __init__(self, errors: Mapping[int, str], results: Sequence[TrainResult]) -> None:
        super().__init__("\n".join(f"seed {seed}: {error}" for seed, error in errors.items()))
        self.results = list(results)


def check_seeds(seeds: Sequence[int]) -> None:
    if not seeds or len(set(seeds)) != len(seeds):
        raise ConfigError(f"seeds must be distinct and at least one, got {list(seeds)}")


def seed_trials(
    config: TrainConfig, seeds: Sequence[int], *, auto_resume: bool = False
) -> list[Trial]:
    """Make a trial for each seed, named like a run of its own; with `auto_resume` like an earlier run of it."""
    check_seeds(seeds)
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    output_dir = Path(config.output_dir).expanduser()
    trials = []
    for seed in seeds:
        single = config.replace(seed=seed).with_absolute_paths()
        earlier = newest_run_of(single.as_dict(), output_dir) if auto_resume else None
        name = earlier.name if earlier else _free_name(output_dir, single, stamp)
        trials.append(Trial(name, single))
    return trials


def _free_name(output_dir: Path, config: TrainConfig, stamp: str) -> str:
    base = run_name(config.algo, config.env_id, config.seed, stamp)
    names = (base, *(f"{base}-{number}" for number in range(2, 1000)))
    return next(name for name in names if not (output_dir / name).exists())


def run_seeds(trials: Sequence[Trial], options: RunOptions) -> list[TrainResult]:
    """Train the seeds; returns the results of those that have one, in the same order.

    A seed that fails leaves the others alone; at the end a `SeedsFailedError` names those that failed. After
    Ctrl-C the results of the seeds that had begun are returned.
    """
    trust(*(trial.config.env_id for trial in trials))
    check_problems(trials)
    runs = Path(trials[0].config.output_dir).expanduser()
    check_output_dir(runs)
    with (
        tempfile.TemporaryDirectory(prefix="rl-training-") as notes,
        driving(options.make_executor(), options.jobs, options.retries, options.report) as driver,
    ):
        files = SweepDirectory(runs, Path(notes))
        outcomes = driver.run([make_task(trial, files, options) for trial in trials])
        _show_logs(outcomes)
        results = [
            outcome.result for outcome in outcomes if outcome.state not in ("failed", "waiting")
        ]
    finished = [result for result in results if result is not None]
    failed = {
        trial.config.seed: outcome
        for trial, outcome in zip(trials, outcomes, strict=True)
        if outcome.state == "failed"
    }
    if failed:
        _raise(failed, finished, len(trials))
    return finished


def _show_logs(outcomes: Sequence[Outcome]) -> None:
    """Print what failed seeds printed, with --debug: their logs go away."""
    for outcome in outcomes:
        if outcome.state == "failed" and log.isEnabledFor(logging.DEBUG):
            log.debug("%s", Path(outcome.task.log).read_text(errors="replace"))


def _raise(failed: Mapping[int, Outcome], finished: Sequence[TrainResult], seeds: int) -> None:
    errors = {seed: outcome.error for seed, outcome in failed.items()}
    if len(failed) == seeds and all(outcome.is_user_error for outcome in failed.values()):
        raise ConfigError("\n".join(dict.fromkeys(errors.values())))  # once, not once per seed
    raise SeedsFailedError(errors, finished)
