"""Several seeds of one configuration, and their summary."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from rl_training.config import ConfigError, RunError
from rl_training.reports.configurations import deviation
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.commands import train
from rl_training.runtime.config.train_config import TrainConfig
from rl_training.runtime.trainer import INTERRUPTED, TrainResult
from rl_training.sweeps.running import RunOptions
from rl_training.sweeps.seeds import SeedsFailedError, check_seeds, run_seeds, seed_trials


@dataclass(frozen=True)
class ExperimentManager:
    """Trains a configuration with several seeds, one after the other or in processes."""

    config: TrainConfig

    def run(
        self,
        seeds: Sequence[int],
        *,
        callbacks: Callable[[TrainConfig], Iterable[Callback]] | None = None,
        jobs: int = 1,
        plugins: Sequence[str] = (),
        progress_bar: bool = False,
        auto_resume: bool = False,
    ) -> list[TrainResult]:
        """Train every seed into a run directory of its own; returns one result per seed.

        With `jobs` above 1 that many seeds run side by side, each in a process. Such a process
        imports `plugins` and cannot take callbacks. Otherwise the seeds run one after the other in this
        process, and `callbacks` makes fresh callbacks for each run. Either way a seed that fails leaves
        the others alone, and after Ctrl-C the results of the seeds that had begun are returned.
        """
        check_seeds(seeds)
        if jobs < 1:
            raise ConfigError(f"jobs must be at least 1, got {jobs}")
        configs = [self.config.replace(seed=seed) for seed in seeds]
        if jobs > 1 and len(seeds) > 1:
            if callbacks is not None:
                raise ConfigError(
                    f"callbacks cannot be sent to the processes of {jobs} jobs: train with jobs=1"
                )
            trials = seed_trials(self.config, seeds, auto_resume=auto_resume)
            return run_seeds(trials, RunOptions(jobs=jobs, retries=0, plugins=tuple(plugins)))
        results: list[TrainResult] = []
        errors: dict[int, str] = {}
        for config in configs:
            try:
                results.append(
                    train(
                        config,
                        callbacks=() if callbacks is None else callbacks(config),
                        progress_bar=progress_bar,
                        auto_resume=auto_resume,
                    )
                )
            except RunError as error:
                if len(configs) == 1:
                    raise
                errors[config.seed] = str(error)
                continue
            if results[-1].stop_reason == INTERRUPTED:
                break  # Ctrl-C stops all seeds
        if errors:
            raise SeedsFailedError(errors, results)
        return results

    @staticmethod
    def summary(results: Sequence[TrainResult]) -> dict[str, tuple[float, float | None]]:
        """Mean and sample standard deviation over runs of every final metric that all of them have.

        One run has no deviation: None.
        """
        shared = set.intersection(*(set(result.metrics) for result in results))
        values = {name: [result.metrics[name] for result in results] for name in sorted(shared)}
        return {name: (fmean(runs), deviation(runs)) for name, runs in values.items()}
