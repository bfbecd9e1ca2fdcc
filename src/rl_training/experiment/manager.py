"""Several runs of one configuration, and what they say together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from rl_training.config import ConfigError
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.entry import train
from rl_training.runtime.stacked import train_stacked
from rl_training.runtime.train_config import TrainConfig
from rl_training.runtime.trainer import INTERRUPTED, TrainResult


@dataclass(frozen=True)
class ExperimentManager:
    """Trains a configuration with several seeds, one after the other or stacked."""

    config: TrainConfig

    def run(
        self,
        seeds: Sequence[int],
        *,
        callbacks: Callable[[TrainConfig], Iterable[Callback]] = lambda _: (),
        stack: bool = False,
    ) -> list[TrainResult]:
        """One result per seed; `callbacks` makes fresh ones for each run.

        With `stack` the seeds of an offline configuration are trained side by side.
        """
        if stack:
            return train_stacked(self.config, seeds, callbacks=callbacks)
        if not seeds or len(set(seeds)) != len(seeds):
            raise ConfigError(f"seeds must be distinct and at least one, got {list(seeds)}")
        results = []
        for config in [self.config.replace(seed=seed) for seed in seeds]:
            results.append(train(config, callbacks=callbacks(config)))
            if results[-1].stop_reason == INTERRUPTED:
                break  # Ctrl-C means all of it
        return results

    @staticmethod
    def summary(results: Sequence[TrainResult]) -> dict[str, tuple[float, float]]:
        """Mean and standard deviation over runs of every final metric that all of them have."""
        shared = set.intersection(*(set(result.metrics) for result in results))
        values = {
            name: np.array([result.metrics[name] for result in results]) for name in sorted(shared)
        }
        return {name: (float(array.mean()), float(array.std())) for name, array in values.items()}
