"""Reading of a run directory: rows of metrics, scores, why the run ended, where its time went, how it was made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_training.config import CheckpointError, ConfigError, parse_yaml
from rl_training.files import read_json, read_regular
from rl_training.runs.layout import (
    CHECKPOINTS,
    CONFIG,
    MANIFEST,
    METRICS,
    RESULT,
    result_warnings,
    step_directories,
)
from rl_training.runs.provenance import read_provenance
from rl_training.runs.rows import iterate_rows

if TYPE_CHECKING:
    from rl_training.runs.tables import RowTable

_BEYOND_FLOATS = 10**308  # JSON has whole numbers of any size; arithmetic with these would fail


@dataclass(frozen=True)
class Score:
    """One evaluation: mean and standard deviation over its episodes."""

    step: int
    mean: float
    std: float


@dataclass(frozen=True)
class RunReport:
    """One run as its directory shows it.

    `command` makes the run again. `dataset` describes the log that it learned from, in short values by dotted
    name; it is empty without a log. What `metadata.json` does not hold is None or empty.
    """

    run: str
    config: dict[str, Any]
    step: int
    finished: bool
    stop_reason: str | None
    evaluations: int
    latest: Score | None
    best: Score | None
    seconds: dict[str, float]
    version: str | None = None
    created: str | None = None
    command: str = ""
    dataset: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

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
        """Number of episodes per evaluation."""
        return int(self.config.get("eval_episodes", 0))

    @property
    def final(self) -> Score | None:
        """Score of the last policy of a finished run; None if that policy was not evaluated."""
        if not self.finished or self.latest is None or self.latest.step != self.step:
            return None
        # after a rollback the run ends with an earlier policy than the one scored last
        rolled_back = (self.stop_reason or "").startswith("rollback")
        return None if rolled_back else self.latest

    def as_dict(self) -> dict[str, Any]:
        """JSON form; of the configuration only what identifies the run."""
        facts = asdict(self)
        del facts["config"]
        final = None if self.final is None else asdict(self.final)
        identity = {"run": self.run, "algo": self.algo, "env_id": self.env_id, "seed": self.seed}
        return {**identity, **facts, "final": final}


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read all rows of a `metrics.jsonl`, as `iterate_rows` does."""
    return list(iterate_rows(path))


def latest_metrics(rows: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Last value of every metric; `step`, `updates` and `epoch` are not metrics."""
    return {key: value for row in rows for key, value in row.items() if "/" in key}


def read_run(
    path: str | Path, each_table: Callable[[RowTable], object] = lambda _: None
) -> RunReport:
    """Read a run directory, finished or not; `each_table` is called with all rows of metrics, table by table."""
    from rl_training.runs.tables import Evaluations, read_tables  # imports NumPy

    run = Path(path)
    check_is_run(run)
    config = read_config(run)
    result = read_result(run)
    saved = _newest_manifest(run)
    step: int = saved.get("progress", {}).get("global_step", 0)
    evaluations = Evaluations()
    for table in read_tables(run / METRICS):
        each_table(table)
        step = max(step, int(table.column("step").max()))
        evaluations.add(table)
    return RunReport(
        run=str(path),
        config=config,
        step=result.get("step", step),
        finished=bool(result),
        stop_reason=result.get("stop_reason"),
        evaluations=evaluations.count,
        latest=evaluations.latest and Score(*evaluations.latest),
        best=evaluations.best and Score(*evaluations.best),
        seconds=(result or saved).get("seconds", {}),
        warnings=result_warnings(run),
        **asdict(read_provenance(run)),
    )


def read_result(run: Path) -> dict[str, Any]:
    """Read `result.json`; empty for a run that has not come to its end."""
    return _read_json(run / RESULT)


def check_is_run(run: Path) -> None:
    """Refuse what is not a run directory: nothing, a file, a checkpoint, a directory of something else."""
    if not run.exists():
        raise CheckpointError(f"{run}: no such file or directory")
    if (run / CONFIG).is_file():
        return
    if (run / MANIFEST).is_file():
        raise CheckpointError(f"{run} is a checkpoint; a report is about its run directory")
    deeper = next(run.glob(f"*/*/{CONFIG}"), None)
    if deeper is not None:
        raise CheckpointError(
            f"{run} holds directories of runs: give these, such as {deeper.parents[1]}"
        )
    raise CheckpointError(f"{run} is no run directory: it has no config.yaml, nor runs in it")


def _are_numbers(*values: Any) -> bool:
    return all(
        type(value) is float or (type(value) is int and _is_in_range(value)) for value in values
    )


def _is_in_range(number: int) -> bool:
    return -_BEYOND_FLOATS < number < _BEYOND_FLOATS


def read_config(run: Path) -> dict[str, Any]:
    """Read the `config.yaml` of a run, as far as reports use it; a `CheckpointError` says what is wrong."""
    path = run / CONFIG
    try:
        config = parse_yaml(read_regular(path, limit=4 << 20).decode(), str(path))
    except OSError as error:
        raise CheckpointError(f"{run}: its config.yaml cannot be read: {error.strerror}") from None
    except (ConfigError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{run}: its config.yaml cannot be read: {error}") from None
    whole = [config.get(key, 0) for key in ("seed", "eval_episodes")] if _is_run(config) else [None]
    if not all(type(number) is int for number in whole):
        raise CheckpointError(f"{run}: its config.yaml is not that of a run")
    return config


def _is_run(config: Any) -> bool:
    return (
        isinstance(config, dict)
        and isinstance(config.get("algo"), str)
        and isinstance(config.get("env_id"), str | None)
    )


def _read_json(path: Path) -> dict[str, Any]:
    """Content of a result or manifest; an empty mapping if there is no such file."""
    try:
        value = read_json(path)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError:
        value = None
    if not isinstance(value, dict) or not _is_well_formed(value):
        raise CheckpointError(f"{path} is damaged")
    return value


def _is_well_formed(value: dict[str, Any]) -> bool:
    """Tell if the parts that a report shows have the types that we wrote."""
    progress, seconds = value.get("progress", {}), value.get("seconds", {})
    return (
        isinstance(progress, dict)
        and type(progress.get("global_step", 0)) is int
        and type(value.get("step", 0)) is int
        and isinstance(value.get("stop_reason"), str | None)
        and isinstance(seconds, dict)
        and _are_numbers(*seconds.values())
    )


def _newest_manifest(run: Path) -> dict[str, Any]:
    steps = step_directories(run / CHECKPOINTS)
    return _read_json(steps[-1] / MANIFEST) if steps else {}
