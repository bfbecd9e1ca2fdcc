"""Estimate of the time that trials will take, from a short training of each kind of them."""

from __future__ import annotations

import json
import logging
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rl_training.runtime.callbacks import Callback
from rl_training.runtime.commands import train
from rl_training.runtime.config.train_config import TrainConfig
from rl_training.sweeps.description import Trial

if TYPE_CHECKING:
    from rl_training.algorithms.base import Terms
    from rl_training.runtime.trainer import TrainerState

SECONDS = 2.0  # of updates, for each probe
MAX_PROBES = 8
_WARM_UP = 5  # updates before the clock starts: the first are recorded
_LEAST = 10  # updates that are timed, however slow they are
_FEW_STEPS = 200  # environment steps before a probe learns


@dataclass(frozen=True)
class Cost:
    """Seconds of the parts of a run."""

    update: float
    env_step: float
    evaluation: float

    def of(self, config: TrainConfig) -> float:
        """Return the seconds of a whole run."""
        updates, env_steps = planned_work(config)
        evaluations = config.budget // config.groups.controls.eval_interval + 1
        return updates * self.update + env_steps * self.env_step + evaluations * self.evaluation


@dataclass(frozen=True)
class Estimate:
    """Time that trials will take, each by itself and all together."""

    seconds: tuple[float, ...]  # of each trial
    probes: int
    jobs: int

    @property
    def total(self) -> float:
        """Return the time from the first trial's start to the last one's end."""
        if not self.seconds:
            return 0.0
        return max(sum(self.seconds) / self.jobs, max(self.seconds))


class _StopSoon(Callback):
    """Times updates and environment steps for a while, then ends the run."""

    def __init__(self) -> None:
        self.updates = self.env_steps = 0
        self.seconds: dict[str, float] = {}
        self._before: dict[str, float] = {}
        self._first_update = 0
        self._since = 0.0

    def on_collect_end(self, state: TrainerState, env_steps: int) -> None:
        if self._before:
            self.env_steps += env_steps

    def on_update_end(self, state: TrainerState, terms: Terms) -> None:
        if not self._before:
            if state.update_count >= _WARM_UP:
                self._before, self._since = state.spans.totals(), time.perf_counter()
                self._first_update, self.env_steps = state.update_count, 0
            return
        self.updates = state.update_count - self._first_update
        if self.updates >= _LEAST and time.perf_counter() - self._since >= SECONDS:
            totals = state.spans.totals()
            self.seconds = {span: totals[span] - self._before[span] for span in totals}
            state.request_stop("probe")


def estimate(
    trials: Sequence[Trial], jobs: int, report: Callable[[str], None] = lambda _: None
) -> Estimate:
    """Train one trial of each configuration for a moment; seeds share a probe, and so do points beyond the eighth."""
    costs: dict[str, Cost] = {}
    by_algorithm: dict[str, Cost] = {}
    seconds = []
    for trial in trials:
        kind = _kind(trial.config)
        if kind not in costs:
            known = by_algorithm.get(trial.config.algo)
            if known is None or len(costs) < MAX_PROBES:
                report(trial.label)
                known = probe(trial.config)
            costs[kind] = by_algorithm[trial.config.algo] = known
        seconds.append(costs[kind].of(trial.config))
    return Estimate(tuple(seconds), min(len(costs), MAX_PROBES), jobs)


def probe(config: TrainConfig) -> Cost:
    """Train for a moment, evaluate once, and measure both."""
    stop = _StopSoon()
    with tempfile.TemporaryDirectory(prefix="rl-training-") as directory, _quietly():
        result = train(_shortened(config, directory), callbacks=[stop])
        seconds = stop.seconds
        evaluation = result.metrics.get("time/evaluate_seconds", 0.0)
    updates, env_steps = max(stop.updates, 1), max(stop.env_steps, 1)
    learning = seconds.get("update", 0.0) + seconds.get("sample", 0.0) + seconds.get("other", 0.0)
    return Cost(learning / updates, seconds.get("collect", 0.0) / env_steps, evaluation)


def planned_work(config: TrainConfig) -> tuple[int, int]:
    """Return the updates and environment steps of the whole budget."""
    controls, replay = config.groups.controls, config.groups.replay
    if config.regime == "offline":
        updates, env_steps = config.total_timesteps, 0
    else:
        env_steps = config.total_timesteps
        rounds = max(0, env_steps - replay.learning_starts) // replay.train_frequency
        updates = rounds * replay.gradient_updates_per_step
        if config.regime == "offline_to_online":
            updates += config.groups.offline_to_online.offline_pretrain_updates
    return min(updates, controls.max_updates or updates), env_steps


def _shortened(config: TrainConfig, directory: str) -> TrainConfig:
    """Return a configuration that learns at once, evaluates at its end only, and writes elsewhere."""
    ends = ("early_stopping", "max_updates", "max_epochs")  # before there was time to measure
    kwargs = {key: value for key, value in config.algo_kwargs.items() if key not in ends}
    kwargs["eval_interval"] = max(config.budget, 1) + 10**9
    if config.regime != "offline":
        kwargs["learning_starts"] = min(config.groups.replay.learning_starts, _FEW_STEPS)
    if config.regime == "offline_to_online":
        kwargs["offline_pretrain_updates"] = 0
    return config.replace(
        output_dir=directory,
        total_timesteps=max(config.total_timesteps, 100_000),
        checkpoint_interval=10**9,
        log_interval=10**9,
        algo_kwargs=kwargs,
    )


def _kind(config: TrainConfig) -> str:
    """Return what makes runs equally long: everything but the seed."""
    return json.dumps({**config.as_dict(), "seed": 0}, sort_keys=True)


@contextmanager
def _quietly() -> Iterator[None]:
    logger = logging.getLogger("rl_training")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
