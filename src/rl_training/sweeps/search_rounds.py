"""One round of a search: all seeds of its trials, stage by stage, and what became of each trial.

Everything here is read off run directories, in the order of trials and seeds, so it makes no difference which
process ended first, nor how often the round was interrupted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from rl_training.config import ConfigError, first_line
from rl_training.reports.statistics import iqm
from rl_training.runs.search_record import SearchTrial
from rl_training.sweeps.description import Trial
from rl_training.sweeps.driver import Driver, Outcome
from rl_training.sweeps.executor import Judging
from rl_training.sweeps.judging import is_judged
from rl_training.sweeps.pruning import Reached, goes_on
from rl_training.sweeps.running import RunOptions, make_task
from rl_training.sweeps.search import Search
from rl_training.sweeps.search_directory import SearchDirectory
from rl_training.sweeps.search_metrics import NoScoreError, final_value, value_at


class SearchInterruptedError(Exception):
    """A signal came; everything is saved."""


@dataclass
class Contender:
    """A trial of the round that is carried out, or a point on its fresh seeds."""

    trial: SearchTrial
    runs: list[Trial]
    reasons: dict[int, str] = field(default_factory=dict)  # why seeds have no score
    values: dict[int, float] = field(default_factory=dict)
    steps: dict[int, float] = field(default_factory=dict)
    is_pruned: bool = False

    @property
    def goes_on(self) -> bool:
        return not self.is_pruned and not self.reasons

    def ended(self) -> SearchTrial:
        """Return the trial with its end."""
        trial = replace(
            self.trial,
            seeds=dict(self.values),
            steps=dict(self.steps),
            runs=tuple(run.name for run in self.runs),
        )
        if self.reasons:
            reason = "; ".join(
                f"seed {seed}: {reason}" if seed >= 0 else reason
                for seed, reason in self.reasons.items()
            )
            return replace(trial, state="failed", value=None, reason=reason)
        state = "pruned" if self.is_pruned else "complete"
        return replace(trial, state=state, value=float(iqm(list(self.values.values()))))  # type: ignore[arg-type]


@dataclass
class Stages:
    """Carries out runs of a search, up to a step or to their end."""

    search: Search
    files: SearchDirectory
    driver: Driver
    options: RunOptions

    def contend(self, trial: SearchTrial, seeds: Sequence[int] | None = None) -> Contender:
        """Make the runs of a trial; a point that is no configuration has failed before it begins."""
        try:
            return Contender(trial, self.search.runs(trial.values, self.files.path, seeds))
        except ConfigError as error:
            return Contender(trial, [], {-1: first_line(error, 300)})

    def carry_out_round(
        self, contenders: Sequence[Contender], earlier: Sequence[SearchTrial]
    ) -> list[SearchTrial]:
        """Carry out a round; the trials of earlier rounds decide which of its trials go on."""
        past = [Reached(trial.number, trial.steps) for trial in earlier]
        for rung in self.search.rungs:
            self._reach(contenders, rung)
            for contender in contenders:
                if contender.goes_on:
                    self._judge_at(contender, rung, past)
        self.finish(contenders)
        return [contender.ended() for contender in contenders]

    def finish(self, contenders: Sequence[Contender]) -> None:
        """Carry out what goes on to its end, and read the scores of the last policies."""
        going = [contender for contender in contenders if contender.goes_on]
        self._run(going, [run for c in going for run in c.runs if not self._is_done(run)], None)
        for contender in going:
            contender.values.clear()
            for run in contender.runs:
                if run.config.seed in contender.reasons:
                    continue
                try:
                    value = final_value(self.files.path / run.name, self.search.metric)
                except NoScoreError as error:
                    contender.reasons[run.config.seed] = str(error)
                else:
                    contender.values[run.config.seed] = value

    def _reach(self, contenders: Sequence[Contender], rung: int) -> None:
        """Train all that go on up to their first evaluation at or after a step."""
        going = [contender for contender in contenders if contender.goes_on]
        behind = [run for c in going for run in c.runs if not self._has_reached(run, rung)]
        self._run(going, behind, rung)

    def _judge_at(self, contender: Contender, rung: int, past: Sequence[Reached]) -> None:
        """Take the trial's value at a step, and decide if it goes on."""
        contender.values.clear()
        for run in contender.runs:
            try:
                value = value_at(self.files.path / run.name, self.search.metric, rung)
            except NoScoreError as error:
                contender.reasons[run.config.seed] = str(error)
                continue
            if value is None:
                contender.reasons[run.config.seed] = f"no evaluation at step {rung}"
                continue
            contender.values[run.config.seed] = value
        if contender.reasons:
            return
        contender.steps[rung] = float(iqm(list(contender.values.values())))
        reached = Reached(contender.trial.number, contender.steps)
        settings = self.search.settings
        contender.is_pruned = not goes_on(
            settings.pruner, self.search.rungs, rung, reached, past, self.search.metric.mode
        )

    def _run(self, going: Sequence[Contender], runs: Sequence[Trial], pause_at: int | None) -> None:
        """Carry out runs, each once: two trials of a round may be the same point."""
        unique = {run.name: run for run in runs}
        tasks = [
            make_task(run, self.files.sweep, self.options, pause_at) for run in unique.values()
        ]
        if self.search.metric.is_judged:
            tasks = [replace(task, judging=self._judging(unique[task.name])) for task in tasks]
        outcomes = {outcome.task.name: outcome for outcome in self.driver.run(tasks)}
        if self.driver.interrupt.interrupted:
            raise SearchInterruptedError
        failed = {name: outcome for name, outcome in outcomes.items() if outcome.state == "failed"}
        for contender in going:
            self._note_failures(contender, failed)

    def _note_failures(self, contender: Contender, failed: dict[str, Outcome]) -> None:
        for run in contender.runs:
            if run.name in failed:
                outcome = failed[run.name]
                contender.reasons[run.config.seed] = outcome.error.split("\n")[0][:300]

    def _is_done(self, run: Trial) -> bool:
        if not self.files.sweep.is_finished(run.name):
            return False
        if not self.search.metric.is_judged:
            return True
        return is_judged(self.files.path / run.name, self._judging(run))

    def _judging(self, run: Trial) -> Judging:
        return self.search.judging(run.config, self.files.path)

    def _has_reached(self, run: Trial, rung: int) -> bool:
        try:
            return value_at(self.files.path / run.name, self.search.metric, rung) is not None
        except NoScoreError:
            return True  # which `_judge_at` says of the trial
