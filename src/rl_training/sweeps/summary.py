"""Summary of a sweep: the score of each point over its seeds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rl_training.reports.statistics import iqm
from rl_training.runtime.trust import runs_named_code
from rl_training.sweeps.running import SweepResult


@dataclass(frozen=True)
class PointSummary:
    """Score of one point: the interquartile mean of a metric of the final policies over seeds."""

    differs: Mapping[str, Any]
    runs: int
    finished: int
    metric: str  # empty if no run measured one
    score: float | None
    low: float | None  # the worst and the best seed
    high: float | None

    @property
    def text(self) -> str:
        if self.score is None:
            return "no score"
        if self.finished == 1:
            return f"{self.score:.4g}"
        return f"{self.score:.4g} [{self.low:.4g}, {self.high:.4g}]"


def summarize_points(result: SweepResult) -> list[PointSummary]:
    """Put the seeds of each point together; points keep their order."""
    groups: dict[str, list[int]] = {}
    for number, trial in enumerate(result.trials):
        groups.setdefault(repr(dict(trial.differs)), []).append(number)
    return [_summarize(result, numbers) for numbers in groups.values()]


def _summarize(result: SweepResult, numbers: list[int]) -> PointSummary:
    trials = [result.trials[number] for number in numbers]
    ended = [result.outcomes[number] for number in numbers]
    runs = [outcome.result for outcome in ended if outcome.state == "ended"]
    finished = [run for run in runs if run is not None]
    metric, _ = trials[0].config.groups.controls.best_metric()
    scores = [run.metrics[metric] for run in finished if metric in run.metrics]
    return PointSummary(
        trials[0].differs,
        len(numbers),
        len(finished),
        metric if scores else "",
        float(iqm(scores)) if scores else None,
        min(scores, default=None),
        max(scores, default=None),
    )


def sweep_facts(result: SweepResult) -> dict[str, Any]:
    """Return the end of a sweep as JSON."""
    runs = [
        {
            "run": outcome.task.run_dir,
            "differs": dict(trial.differs),
            "seed": trial.config.seed,
            "state": outcome.state,
            "attempts": outcome.attempts,
            "error": outcome.error or None,
        }
        for trial, outcome in zip(result.trials, result.outcomes, strict=True)
    ]
    return {
        "directory": str(result.directory),
        "runs": runs,
        "points": [asdict(point) for point in summarize_points(result)],
    }


def resume_sweep_command(result: SweepResult) -> str:
    """Return the command that goes on with the sweep."""
    trusted = any(runs_named_code(trial.config.env_id) for trial in result.trials)
    return f"rl-training sweep resume {result.directory}{' --trust-env' if trusted else ''}"
