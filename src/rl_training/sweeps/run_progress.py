"""Progress of one run by its files: scores of its evaluations, step, speed, end. Needs no torch."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from rl_training.config import CheckpointError
from rl_training.runs.layout import CONFIG, METRICS, RESULT, result_warnings
from rl_training.runs.reading import read_config, read_result
from rl_training.runs.rows import decode_row
from rl_training.runs.tailing import ChangingFile, GrowingLines
from rl_training.sweeps.status import MAX_WARNINGS, TrialStatus, parse_status

RETURN = "eval/return_mean"
_VALIDATION = "validation/"
_SPEEDS = {
    "time/updates_per_second": "updates_per_second",
    "time/steps_per_second": "steps_per_second",
}
_MAX_SCORES = 20_000  # of one metric, the latest
_MAX_METRICS = 32


class RunProgress:
    """Follows one run; what is read once is not read again."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self._config = ChangingFile(run_dir / CONFIG, lambda _: _plan(run_dir))
        self._result = ChangingFile(run_dir / RESULT, lambda _: _end(run_dir))
        self._lines = GrowingLines(run_dir / METRICS, self._forget)
        self._scores: dict[str, deque[float]] = {}
        self._latest: dict[str, Any] = {}

    @property
    def label(self) -> str:
        """Algorithm, environment and seed; empty if the configuration cannot be read."""
        return self._config.value().label

    def scores(self) -> tuple[str, tuple[float, ...]]:
        """Return the metric that is shown, and its values at all evaluations: the return if there is one."""
        self._read()
        for name in (RETURN, self._config.value().watched, *self._scores):
            if name in self._scores:
                return name, tuple(self._scores[name])
        return "", ()

    def status(self, *, at_work: bool) -> TrialStatus:
        """Say how far the run is; `at_work` tells if a process trains it."""
        self._read()
        plan, end = self._config.value(), self._result.value()
        metric, scores = self.scores()
        values = {
            "state": "running",  # as long as a process is at it
            "total": plan.total,
            "score": _score_text(metric, scores[-1]) if scores else "",
            "updated": self._lines.written,
            **self._latest,
        }
        status = parse_status(values)
        problem = plan.problem or end.problem
        if at_work:
            return status
        if problem:
            return replace(status, state="failed", error=problem)
        if not end.is_there:
            return replace(status, state="stopped")
        return replace(
            status,
            state="ended",
            step=end.step,
            stop_reason=end.reason,
            warnings=end.warnings,
        )

    def _forget(self) -> None:
        self._scores.clear()
        self._latest.clear()

    def _read(self) -> None:
        """Take new rows; those without a score are decoded only if they are the last ones."""
        last = timed = b""
        for line in self._lines.new_lines():
            last = line
            if b'"time/' in line:
                timed = line
            if b'"eval/' in line or b'"validation/' in line:
                self._take_scores(decode_row(line) or {})
        for line in filter(None, (timed, last)):
            row = decode_row(line)
            if row is not None:
                self._latest["step"] = row["step"]
                self._latest |= {field: row[name] for name, field in _SPEEDS.items() if name in row}

    def _take_scores(self, row: dict[str, Any]) -> None:
        for name in _score_names(row):
            if name in self._scores or len(self._scores) < _MAX_METRICS:
                self._scores.setdefault(name, deque(maxlen=_MAX_SCORES)).append(float(row[name]))


def _score_names(row: dict[str, Any]) -> Iterator[str]:
    return (name for name in row if name == RETURN or name.startswith(_VALIDATION))


class _Plan:
    """Length of a run and the metric that it watches, by its configuration."""

    def __init__(self, config: dict[str, Any], problem: str = "") -> None:
        kwargs = config.get("algo_kwargs")
        kwargs = kwargs if isinstance(kwargs, dict) else {}
        stopping = kwargs.get("early_stopping")
        metric = stopping.get("metric") if isinstance(stopping, dict) else None
        counts = (config.get("total_timesteps"), kwargs.get("offline_pretrain_updates"))
        self.total = sum(count for count in counts if type(count) is int)
        self.watched = metric if isinstance(metric, str) else ""
        words = (
            config.get("algo", ""),
            config.get("env_id") or "logs",
            f"seed={config.get('seed', 0)}",
        )
        self.label = "" if problem else " ".join(map(str, words))
        self.problem = problem


def _plan(run_dir: Path) -> _Plan:
    try:
        return _Plan(read_config(run_dir))
    except CheckpointError as error:
        return _Plan({}, str(error))


class _End:
    """End of a run, by its `result.json`, if that is there."""

    def __init__(
        self, result: dict[str, Any], warnings: tuple[str, ...] = (), problem: str = ""
    ) -> None:
        self.is_there = bool(result)
        self.step = result.get("step", 0)
        self.reason = result.get("stop_reason")
        self.warnings = warnings[:MAX_WARNINGS]
        self.problem = problem


def _end(run_dir: Path) -> _End:
    try:
        return _End(read_result(run_dir), result_warnings(run_dir))
    except CheckpointError as error:
        return _End({}, problem=str(error))


def _score_text(metric: str, value: float) -> str:
    return f"return {value:.1f}" if metric == RETURN else f"{metric} {value:.4g}"
