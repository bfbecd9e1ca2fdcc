"""Tuning: rounds of trials until the budget is spent, then the best configuration on fresh seeds.

The same call goes on where an earlier one ended, however it ended. It asks for all trials so far once more and
compares them with those in the record, so what comes next is what would have come without an interruption.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from rl_training.config import ConfigError, RunError, dump_yaml
from rl_training.reports.statistics import summarize
from rl_training.runs.search_record import MAX_TRIALS, FreshScore, SearchRecord, SearchTrial
from rl_training.runtime.trust import trust
from rl_training.sweeps.description import Trial
from rl_training.sweeps.directory import TrialRecord
from rl_training.sweeps.driver import driving
from rl_training.sweeps.running import RunOptions, record_of
from rl_training.sweeps.search import Search
from rl_training.sweeps.search_directory import SearchDirectory
from rl_training.sweeps.search_replay import Rounds, begin_or_continue
from rl_training.sweeps.search_rounds import Contender, SearchInterruptedError, Stages
from rl_training.sweeps.suggestions import check_search_packages

CONFIDENCE = 0.95
TRIALS = 50
GIVE_UP = 10  # trials at the beginning of a search that may all fail


@dataclass(frozen=True)
class TuneEvents:
    """Functions that are told how a search goes on."""

    # labels of the runs that follow, by name, and which part of the search they are
    begin: Callable[[Mapping[str, str], str], None] = lambda *_: None
    end: Callable[[SearchTrial, SearchRecord], None] = lambda *_: None  # of a trial


@dataclass(frozen=True)
class TuneResult:
    """End of a call: the record of the search, and whether a signal ended the call."""

    directory: Path
    search: Search
    record: SearchRecord
    interrupted: bool = False

    @property
    def best(self) -> SearchTrial | None:
        return self.record.best


def tune(
    search: Search,
    directory: str | Path,
    *,
    trials: int = TRIALS,
    timeout: float | None = None,
    options: RunOptions | None = None,
    events: TuneEvents | None = None,
) -> TuneResult:
    """Search in a directory until it has so many trials; the same call goes on where an earlier one ended.

    Args:
        search: Description of the search.
        directory: Where its runs and its record lie.
        trials: Number of trials, those of earlier calls included. It may be raised later.
        timeout: Seconds after which this call begins no other round.
        options: How runs are carried out.
        events: Functions that are told how it goes on.
    """
    options = RunOptions() if options is None else options
    if not 1 <= trials <= MAX_TRIALS:
        raise ConfigError(f"trials must be 1 to {MAX_TRIALS:,}, got {trials}")
    deadline = time.monotonic() + (float("inf") if timeout is None else timeout)
    versions = check_search_packages(search.settings.sampler)
    files = SearchDirectory(Path(directory).expanduser().absolute())
    trust(search.config.env_id)
    search.check(files.path)
    files.create()
    with files.sweep.lock():
        search, record = begin_or_continue(search, files, versions, options.jobs, trials)
        with driving(
            options.make_executor(), options.jobs, options.retries, options.report
        ) as driver:
            stages = Stages(search, files, driver, options)
            tuning = _Tuning(stages, record, events or TuneEvents())
            try:
                tuning.carry_out(trials, deadline)
                tuning.conclude()
            except SearchInterruptedError:
                return TuneResult(files.path, search, tuning.record, interrupted=True)
    return TuneResult(files.path, search, tuning.record)


@dataclass
class _Tuning:
    stages: Stages
    record: SearchRecord
    events: TuneEvents
    rounds: Rounds = field(init=False)
    _runs: dict[str, TrialRecord] = field(default_factory=dict)  # all so far

    def __post_init__(self) -> None:
        self.rounds = Rounds(self.stages.search, self.record)
        self._write(self.record)
        self._list(run for trial in self.record.trials for run in self.stages.contend(trial).runs)

    def carry_out(self, trials: int, deadline: float) -> None:
        """Carry out round after round."""
        while asked := self.rounds.next(trials):
            is_new = asked[-1].number >= len(self.record.trials)
            if is_new and time.monotonic() >= deadline:
                return
            waiting = [trial for trial in asked if trial.state == "waiting"]
            if waiting:
                self._carry_out_round(asked, waiting)
            first = asked[0].number
            self.rounds.tell(self.record.trials[first : asked[-1].number + 1])
            if waiting:
                self.rounds.suggester.write_journal(self.stages.files.journal)
            self._give_up_if_all_fail()

    def _carry_out_round(self, asked: list[SearchTrial], waiting: list[SearchTrial]) -> None:
        first = asked[0].number
        earlier = self.record.trials[:first]
        contenders = [self.stages.contend(trial) for trial in waiting]
        runs = [run for contender in contenders for run in contender.runs]
        self._list(runs)
        self._write(replace(self.record, trials=(*earlier, *asked)))
        last = asked[-1].number
        numbers = f"trial {first}" if first == last else f"trials {first} to {last}"
        self.events.begin(_labels(contenders), numbers)
        ended = self.stages.carry_out_round(contenders, earlier)
        known = {trial.number: trial for trial in (*asked, *ended)}
        self._write(replace(self.record, trials=(*earlier, *(known[t.number] for t in asked))))
        for trial in ended:
            self.events.end(trial, self.record)

    def conclude(self) -> None:
        """Train the best configuration on fresh seeds, and write down everything about the end."""
        best = self.record.best
        if best is None:
            raise RunError(f"no trial is complete{self._first_failure()}")
        search, files = self.stages.search, self.stages.files
        importance, note = self.rounds.suggester.importances()
        record = replace(self.record, importance=importance, importance_note=note, fresh=None)
        self._write(record)
        files.write_best(_best_text(search, record, best))
        if search.fresh_seeds:
            contender = self.stages.contend(best, search.fresh_seeds)
            self._list(contender.runs)
            self.events.begin(_labels([contender]), f"trial {best.number} on fresh seeds")
            self.stages.finish([contender])
            score = _fresh_score(best.number, contender.values, contender.reasons)
            self._write(replace(record, fresh=score))

    def _write(self, record: SearchRecord) -> None:
        self.record = record
        self.stages.files.write(record)

    def _list(self, runs: Iterable[Trial]) -> None:
        before = len(self._runs)
        for run in runs:
            self._runs.setdefault(run.name, record_of(run))
        if len(self._runs) > before:
            self.stages.files.list_runs(self._runs.values())

    def _give_up_if_all_fail(self) -> None:
        ended = [trial for trial in self.record.trials if trial.state != "waiting"]
        if len(ended) >= GIVE_UP and all(trial.state == "failed" for trial in ended):
            raise RunError(f"all {len(ended)} trials failed{self._first_failure()}")

    def _first_failure(self) -> str:
        failed = [trial for trial in self.record.trials if trial.state == "failed"]
        return f"; trial {failed[0].number}: {failed[0].reason}" if failed else ""


def _labels(contenders: Sequence[Contender]) -> dict[str, str]:
    return {
        run.name: f"trial {contender.trial.number} seed {run.config.seed}"
        for contender in contenders
        for run in contender.runs
    }


def _fresh_score(number: int, values: dict[int, float], failed: dict[int, str]) -> FreshScore:
    if not values:
        return FreshScore(number, {}, failed, None, None, None, None, CONFIDENCE)
    summary = summarize([np.array(list(values.values()))], confidence=CONFIDENCE)
    low, high = summary.iqm_interval or (None, None)
    return FreshScore(
        number, dict(values), dict(failed), summary.iqm, low, high, summary.mean, CONFIDENCE
    )


def _best_text(search: Search, record: SearchRecord, best: SearchTrial) -> str:
    """Write the best configuration as a file, with a comment that says where it comes from."""
    seeds = ", ".join(map(str, search.settings.seeds))
    wrong = "high" if record.mode == "max" else "low"
    lines = [
        f"# best of {len(record.trials)} trials: trial {best.number}, {record.metric} {best.value:.6g} over seeds {seeds}",
        f"# chosen by this number, so too {wrong} on average; tune.json has the score on fresh seeds",
    ]
    return "\n".join(lines) + "\n" + dump_yaml(search.configure(best.values).as_dict())
