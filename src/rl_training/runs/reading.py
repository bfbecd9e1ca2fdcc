"""What run directories say: scores, why a run ended, where its time went. Needs no torch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from rl_training.config import CheckpointError, ConfigError, parse_yaml

# what may differ between runs of one configuration
_OWN = ("seed", "output_dir", "tags")


@dataclass(frozen=True)
class Score:
    """One evaluation: mean and standard deviation over its episodes."""

    step: int
    mean: float
    std: float


@dataclass(frozen=True)
class RunReport:
    """One run as its directory shows it."""

    run: str
    config: dict[str, Any]
    step: int
    finished: bool
    stop_reason: str | None
    evaluations: int
    latest: Score | None
    best: Score | None
    seconds: dict[str, float]

    @property
    def algo(self) -> str:
        return str(self.config.get("algo"))

    @property
    def env_id(self) -> str | None:
        return self.config.get("env_id")

    @property
    def seed(self) -> int:
        return int(self.config.get("seed", 0))

    @property
    def episodes(self) -> int:
        """Of each evaluation."""
        return int(self.config.get("eval_episodes", 0))

    @property
    def final(self) -> Score | None:
        """The score of the policy that a finished run ended with."""
        if not self.finished or self.latest is None or self.latest.step != self.step:
            return None
        # a score that fell too far is not that of the policy which the run went back to
        went_back = (self.stop_reason or "").startswith("rollback")
        return None if went_back else self.latest

    def as_dict(self) -> dict[str, Any]:
        """For machines."""
        known = asdict(self)
        del known["config"]
        final = None if self.final is None else asdict(self.final)
        who = {"run": self.run, "algo": self.algo, "env_id": self.env_id, "seed": self.seed}
        return {**who, **known, "final": final}


def read_run(path: str | Path) -> RunReport:
    """Read a run directory, finished or not."""
    run = Path(path)
    _check_is_run(run)
    config = _read_config(run)
    result = _read_json(run / "result.json")
    saved = _newest_manifest(run)
    rows = _read_rows(run / "metrics.jsonl")
    scores = [
        Score(row["step"], row["eval/return_mean"], row["eval/return_std"])
        for row in rows
        if "eval/return_mean" in row
    ]
    scores.sort(key=lambda score: score.step)
    steps = [row["step"] for row in rows] + [saved.get("progress", {}).get("global_step", 0)]
    return RunReport(
        run=str(path),
        config=config,
        step=result.get("step", max(steps)),
        finished=bool(result),
        stop_reason=result.get("stop_reason"),
        evaluations=len(scores),
        latest=scores[-1] if scores else None,
        best=max(scores, key=lambda score: score.mean) if scores else None,  # the first, if several
        seconds=(result or saved).get("seconds", {}),
    )


def grouped(reports: Iterable[RunReport]) -> list[list[RunReport]]:
    """Runs of one configuration together, by seed; configurations as they were given."""
    groups: dict[str, list[RunReport]] = {}
    for report in reports:
        shared = {key: value for key, value in report.config.items() if key not in _OWN}
        groups.setdefault(json.dumps(shared, sort_keys=True), []).append(report)
    return [sorted(group, key=lambda report: report.seed) for group in groups.values()]


def over_seeds(group: Sequence[RunReport]) -> dict[str, Any]:
    """Mean and standard deviation over the finished runs of one configuration."""
    finished = [report for report in group if report.final is not None]
    summary: dict[str, Any] = {
        "algo": group[0].algo,
        "env_id": group[0].env_id,
        "seeds": [report.seed for report in group],
        "finished_seeds": [report.seed for report in finished],
    }
    for name in ("final", "best"):
        means = [getattr(report, name).mean for report in finished]
        if means:
            summary[name] = {"mean": fmean(means), "std": pstdev(means)}
    return summary


def _check_is_run(run: Path) -> None:
    if not run.exists():
        raise CheckpointError(f"{run}: no such file or directory")
    if (run / "config.yaml").is_file():
        return
    if (run / "manifest.json").is_file():
        raise CheckpointError(f"{run} is a checkpoint; a report is about its run directory")
    if any(run.glob("*/config.yaml")):
        raise CheckpointError(f"{run} is not a run directory but holds some: name them, {run}/*")
    raise CheckpointError(f"{run} is not a run directory: it has no config.yaml")


def _read_config(run: Path) -> dict[str, Any]:
    path = run / "config.yaml"
    try:
        config = parse_yaml(path.read_text(), str(path))
    except (ConfigError, OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{run}: its config.yaml cannot be read: {error}") from None
    if not isinstance(config, dict) or "algo" not in config:
        raise CheckpointError(f"{run}: its config.yaml is not that of a run")
    return config


def _read_json(path: Path) -> dict[str, Any]:
    """Empty if it is not there."""
    try:
        value = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):
        value = None
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} is damaged")
    return value


def _newest_manifest(run: Path) -> dict[str, Any]:
    found = {
        int(path.parent.name.removeprefix("step_")): path
        for path in (run / "checkpoints").glob("step_*/manifest.json")
        if path.parent.name.removeprefix("step_").isdigit()
    }
    return _read_json(found[max(found)]) if found else {}


def _read_rows(path: Path) -> list[dict[str, Any]]:
    """Rows of metrics; one that is being written, or was cut off, is left out."""
    rows = []
    for line in path.read_text(errors="replace").splitlines() if path.exists() else ():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict) and "step" in row:
            rows.append(row)
    return rows
