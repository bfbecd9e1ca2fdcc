"""Running of a sweep in its directory: what is finished stays, what was interrupted goes on, the rest begins."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rl_training.config import CheckpointError, ConfigError, Problem, RLTrainingError
from rl_training.data.dataset_loaders import require_file
from rl_training.runtime.config.train_config import TrainConfig
from rl_training.runtime.prepare import check_actions
from rl_training.runtime.trust import check_trusted, trust
from rl_training.sweeps.description import Sweep, Trial
from rl_training.sweeps.directory import SweepDirectory, TrialRecord
from rl_training.sweeps.driver import Driver, Outcome, Report, driving
from rl_training.sweeps.executor import Executor, Limits, Task
from rl_training.sweeps.local import LocalExecutor

log = logging.getLogger("rl_training")


@dataclass(frozen=True)
class RunOptions:
    """Options of carrying out trials, which change no result."""

    jobs: int = 1
    retries: int = 2
    limits: Limits = field(default_factory=Limits)
    plugins: tuple[str, ...] = ()
    report: Report = lambda *_: None
    make_executor: Callable[[], Executor] = LocalExecutor

    def __post_init__(self) -> None:
        if self.jobs < 1:
            raise ConfigError(f"jobs must be at least 1, got {self.jobs}")
        if self.retries < 0:
            raise ConfigError(f"retries must be at least 0, got {self.retries}")


@dataclass(frozen=True)
class SweepResult:
    """End of a sweep: an outcome for each trial, in order."""

    directory: Path
    trials: tuple[Trial, ...]
    outcomes: tuple[Outcome, ...]

    @property
    def interrupted(self) -> bool:
        return any(outcome.state in ("interrupted", "waiting") for outcome in self.outcomes)

    @property
    def failed(self) -> list[tuple[Trial, Outcome]]:
        pairs = zip(self.trials, self.outcomes, strict=True)
        return [(trial, outcome) for trial, outcome in pairs if outcome.state == "failed"]


def run_sweep(
    sweep: Sweep | Sequence[Trial],
    directory: str | Path,
    *,
    description: Mapping[str, Any] | None = None,
    options: RunOptions | None = None,
) -> SweepResult:
    """Carry out a sweep, or trials, in a directory; the same call goes on where an earlier one ended."""
    options = RunOptions() if options is None else options
    trials = sweep.trials(directory) if isinstance(sweep, Sweep) else sweep
    if isinstance(sweep, Sweep):
        description = sweep.as_dict() if description is None else description
    if not trials:
        raise ConfigError("the sweep has no runs")
    trust(*(trial.config.env_id for trial in trials))
    check_problems(trials)
    files = SweepDirectory(Path(directory).expanduser().absolute())
    files.create()
    with files.lock():
        _note_earlier(files, trials)
        files.write({} if description is None else description, map(record_of, trials))
        with driving(
            options.make_executor(), options.jobs, options.retries, options.report
        ) as driver:
            outcomes = carry_out(driver, trials, files, options)
    return SweepResult(files.path, tuple(trials), tuple(outcomes))


def carry_out(
    driver: Driver,
    trials: Sequence[Trial],
    files: SweepDirectory,
    options: RunOptions,
    *,
    pause_at: int | None = None,
) -> list[Outcome]:
    """Carry out those trials that are not finished; returns an outcome for each."""
    tasks = [make_task(trial, files, options, pause_at) for trial in trials]
    waiting = [task for task in tasks if not files.is_finished(task.name)]
    outcomes = {outcome.task.name: outcome for outcome in driver.run(waiting)}
    return [outcomes.get(task.name) or Outcome(task, "ended", attempts=0) for task in tasks]


def make_task(
    trial: Trial, files: SweepDirectory, options: RunOptions, pause_at: int | None = None
) -> Task:
    return Task(
        trial.name,
        trial.config.as_dict(),
        run_dir=str(files.run_dir(trial.name)),
        status=str(files.status_path(trial.name)),
        log=str(files.log_path(trial.name)),
        plugins=options.plugins,
        pause_at=pause_at,
        limits=options.limits,
        debug=log.isEnabledFor(logging.DEBUG),
    )


def record_of(trial: Trial) -> TrialRecord:
    return TrialRecord(trial.name, trial.label, trial.differs, trial.config.as_dict())


def trials_in(directory: str | Path, *, trust_env: bool = False) -> list[Trial]:
    """Read the trials of a sweep that was begun before.

    An environment `module:Name` that only the directory names is refused, unless `trust_env` allows it.
    """
    files = SweepDirectory(Path(directory).expanduser().absolute())
    files.refuse_search()
    trials = []
    for record in files.records():
        # the sweep may have been moved: its runs lie where it is now
        config = TrainConfig(**{**record.config, "output_dir": str(files.path)})
        if trust_env:
            trust(config.env_id)
        check_trusted(config.env_id, files.path)
        trials.append(Trial(record.name, config, record.differs))
    return trials


def check_problems(trials: Iterable[Trial]) -> None:
    """Refuse environments and files that are not there, and algorithms that do not fit, for all trials at once."""
    problems: dict[str, Problem] = {}
    checked: set[str] = set()
    for trial in trials:
        config = trial.config
        key = json.dumps(
            [config.algo, config.env_id, config.env_kwargs, files_of(config)], sort_keys=True
        )
        if key in checked:
            continue
        checked.add(key)
        try:
            for path in files_of(config):
                require_file(path)
            check_actions(config)
        except RLTrainingError as error:
            problems.setdefault(str(error), Problem((), f"{error} (at {trial.label})"))
    if problems:
        raise ConfigError(list(problems.values()))


def files_of(config: TrainConfig) -> list[str]:
    options = config.groups.dataset
    parts = [options] if options.dataset_mix is None else list(options.dataset_mix)
    return [part.dataset_path for part in parts if part.dataset_path is not None]


def _note_earlier(files: SweepDirectory, trials: Sequence[Trial]) -> None:
    names = {trial.name for trial in trials}
    earlier: list[str] = []
    with suppress(CheckpointError):  # there is none yet, or it is damaged: it is written anew
        earlier = [record.name for record in files.records() if record.name not in names]
    if earlier:
        log.info(
            "%d runs of an earlier description are not in this one; they stay as they are in %s",
            len(earlier), files.path,
        )  # fmt: skip
