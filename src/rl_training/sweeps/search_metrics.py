"""Metrics that a search can go by: their direction, whether a configuration measures them, values of a run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch

from rl_training.config import ConfigError, suggest
from rl_training.data.formats import parse_location
from rl_training.data.transitions.batch import Batch
from rl_training.ope.fitted_q import FitOptions
from rl_training.runs.layout import METRICS, RESULT
from rl_training.runs.reading import read_result, read_rows
from rl_training.runs.search_record import Mode
from rl_training.runtime.config.controls import (
    EVALUATION_METRICS,
    VALIDATION_METRICS,
    metric_key,
)
from rl_training.runtime.config.train_config import TrainConfig, group_classes
from rl_training.spec import ProblemSpec
from rl_training.sweeps.executor import Judging
from rl_training.sweeps.judging import judged_value

FQE = "ope/fqe"
_DIRECTIONS: dict[str, Mode] = {
    "eval/return_mean": "max",
    "eval/shaped_return_mean": "max",
    "eval/success_rate": "max",
    "validation/td_error": "min",
    "validation/log_prob": "max",
    "validation/action_distance": "min",
    "validation/unlike_share": "min",
    FQE: "max",
}


@dataclass(frozen=True)
class Metric:
    """A metric and the direction in which it gets better."""

    name: str
    mode: Mode

    @property
    def is_judged(self) -> bool:
        """True for an estimate that is made after training, from the log."""
        return self.name == FQE

    @property
    def is_evaluated(self) -> bool:
        """True if every evaluation measures it, so that it has intermediate values."""
        return self.name.startswith(("eval/", "validation/"))


def choose_metric(name: str, mode: Mode | None, config: TrainConfig) -> Metric:
    """Check a metric and choose its direction; one that the configuration does not measure is refused."""
    key = metric_key(name)
    known = (*EVALUATION_METRICS, *VALIDATION_METRICS, FQE)
    if key.startswith("train/"):
        _check_loss(key, config)
    elif key not in known:
        hint = suggest(key, known) or f" (known: {', '.join(known)}, train/<loss>)"
        raise ConfigError(f"metric: a search cannot go by {name!r}{hint}")
    direction = mode or _DIRECTIONS.get(key) or ("min" if key.endswith("_loss") else None)
    if direction is None:
        raise ConfigError(f"metric: is more or less of {key} better? Say --mode max or --mode min")
    reason = _why_unmeasured(key, config)
    if reason is not None:
        raise ConfigError(f"metric: {key} is not measured: {reason}")
    return Metric(key, direction)


def _why_unmeasured(key: str, config: TrainConfig) -> str | None:
    if key.startswith("eval/"):
        if config.env_id is None:
            return "env_id is null; name an environment, or choose ope/fqe or a validation/* metric"
        if config.eval_episodes == 0:
            return "eval_episodes is 0"
        if key == "eval/shaped_return_mean" and config.groups.env.evaluation.reward.is_identity:
            return "only env_kwargs.wrappers.reward gives another return than eval/return_mean"
    if key.startswith("validation/"):
        if "dataset" not in group_classes(config.spec) or config.regime == "online":
            return f"{config.algo} learns from no log"
        if config.groups.dataset.validation_fraction is None:
            return "set validation_fraction, such as 0.1"
    if key == FQE:
        return None if log_location(config) else _WITHOUT_LOG
    return None


_WITHOUT_LOG = "it needs one log that the configuration names: dataset_kind with dataset_path or dataset_id, no mixture"


def log_location(config: TrainConfig) -> str | None:
    """Return the log that a configuration learns from, as commands name it; None if it is not one."""
    if config.regime == "online":
        return None
    dataset = config.groups.dataset
    if dataset.dataset_mix is not None or dataset.dataset_kind is None:
        return None
    if dataset.dataset_path is not None:
        return dataset.dataset_path
    if dataset.dataset_id is None:
        return None
    return f"{dataset.dataset_kind}:{dataset.dataset_id}"


def gamma_of(config: TrainConfig) -> float:
    """Return the discount that a configuration trains with."""
    return float(getattr(config.groups.algorithm, "gamma", 0.99))


def judging_of(config: TrainConfig, gamma: float, directory: Path, updates: int) -> Judging:
    """Describe how a run of a search is judged: values at different discounts cannot be compared."""
    location = log_location(config)
    if location is None:
        raise ConfigError(f"metric: {FQE} is not measured: {_WITHOUT_LOG}")
    parse_location(location)
    FitOptions(updates=updates)
    return Judging(
        dataset=location,
        gamma=gamma,
        held_out=config.groups.dataset.validation_fraction is not None,
        updates=updates,
        output_dir=str(directory / "ope"),
    )


def _check_loss(key: str, config: TrainConfig) -> None:
    """Refuse a loss that the algorithm does not have; four updates of a small batch show all that it has."""
    spec = ProblemSpec(3, "continuous", 2, (-1.0, -1.0), (1.0, 1.0))
    generator = torch.Generator().manual_seed(0)
    actions: Any = torch.rand(4, 2, generator=generator)
    if "continuous" not in config.spec.action_kinds:
        spec, actions = ProblemSpec(3, "discrete", 2), torch.tensor([0, 1, 1, 0])
    obs, rewards, next_obs, ends = (
        torch.rand(4, *shape, generator=generator) for shape in ((3,), (), (3,), ())
    )
    learner = config.spec.algorithm(spec, cast(Any, config.groups.algorithm))
    batch = Batch(obs, actions, rewards, next_obs, ends, torch.rand(4, 2), torch.ones(4))
    names: set[str] = set()
    for _ in range(4):  # delayed updates have more terms in some of them
        names |= {f"train/{term}" for term in learner.update(batch)}
    if key not in names:
        hint = suggest(key, names) or f" (known: {', '.join(sorted(names))})"
        raise ConfigError(f"metric: {config.algo} has no {key}{hint}")


class NoScoreError(Exception):
    """A run has no score, for the reason that is the message."""


def final_value(run_dir: Path, metric: Metric) -> float:
    """Return the score of a finished run's last policy; `NoScoreError` says why there is none."""
    if metric.is_judged:
        value, reason = judged_value(run_dir)
        if value is None:
            reason = reason.replace("--updates", "--fqe-updates")  # as a search names them
            raise NoScoreError(f"its {metric.name} is not to be trusted: {reason}")
        return _finite(value, metric.name)
    result = read_result(run_dir)
    if not result:
        raise NoScoreError("its run is not finished")
    rows = [row for row in read_rows(run_dir / METRICS) if metric.name in row]
    if not rows and metric.is_evaluated:  # nor will another: environment and log are the same
        raise ConfigError(
            f"metric: {metric.name} is not measured: {run_dir.name} has been trained and has none"
        )
    if not rows:
        raise NoScoreError(f"its run has no {metric.name}")
    if metric.is_evaluated:
        rolled_back = str(result.get("stop_reason") or "").startswith("rollback")
        if rolled_back or rows[-1]["step"] != result.get("step"):
            raise NoScoreError("its last policy was not evaluated")
    return _finite(rows[-1][metric.name], metric.name)


def value_at(run_dir: Path, metric: Metric, rung: int) -> float | None:
    """Return the score of the first evaluation at or after a step; None if the run has not come there.

    A run that ended before has its last score.
    """
    rows = read_rows(run_dir / METRICS)
    for row in rows:
        if metric.name in row and row["step"] >= rung:
            return _finite(row[metric.name], metric.name)
    return final_value(run_dir, metric) if (run_dir / RESULT).is_file() else None


def _finite(value: float, name: str) -> float:
    if not math.isfinite(value):
        raise NoScoreError(f"its {name} is {value}, which is no score")
    return float(value)
