"""Suggestions of Optuna's samplers, the same in every process that asks and tells the same.

A study lives in memory and is made again by replaying: every trial so far is asked for and told once more. The
sampler is new for each trial and seeded by the trial's number, so a suggestion depends on what was told before it
and on nothing else. No state of a sampler is ever stored: that of CMA-ES is a pickle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rl_training.config import MissingExtraError, dump_yaml_value
from rl_training.files import write_bytes
from rl_training.runs.search_record import Mode, SearchTrial
from rl_training.sweeps.axes import Axis
from rl_training.sweeps.journal import journal_of, quietly

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler
    from optuna.study import Study
    from optuna.trial import Trial

Sampler = Literal["tpe", "random", "cmaes"]
STARTUP_TRIALS = 10  # drawn at random before TPE has something to go by
# whose importance says something; with fewer the best tenth is a single trial that was lucky
LEAST_FOR_IMPORTANCE = 10


def check_search_packages(sampler: Sampler) -> dict[str, str]:
    """Refuse to begin without the packages that the sampler needs; returns their versions."""
    packages = ("optuna", "cmaes") if sampler == "cmaes" else ("optuna",)
    for package in packages:
        try:
            import_module(package)
        except ImportError:
            raise MissingExtraError("rl-training tune", package, "tune") from None
    return {package: version(package) for package in packages}


@dataclass(frozen=True)
class Suggestion:
    """One point: `params` as Optuna knows it, `values` as configurations take it."""

    params: Mapping[str, Any]
    values: Mapping[str, Any]


@dataclass
class Suggester:
    """Asks for trials in the order of their numbers, and is told how they ended."""

    axes: Sequence[Axis]
    sampler: Sampler
    mode: Mode
    seed: int
    counts_pruned: bool = False  # CMA-ES learns from the values at which trials were pruned
    _asked: dict[int, Trial] = field(default_factory=dict)

    def __post_init__(self) -> None:
        import optuna

        with quietly():
            self._study: Study = optuna.create_study(direction=_direction(self.mode))

    def ask(
        self, number: int, known: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    ) -> Suggestion:
        """Suggest trial `number`; `known` returns what conditions may name, from the values so far."""
        with quietly():
            self._study.sampler = self._sampler(number)
            return self._suggest(number, known)

    def take(
        self,
        number: int,
        values: Mapping[str, Any],
        known: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    ) -> Suggestion:
        """Let trial `number` be one that was chosen; one outside of the space teaches the sampler nothing."""
        params = self._params(values, known)
        with quietly():
            self._study.sampler = self._sampler(number)
            if params is not None:
                self._study.enqueue_trial(params)
                return self._suggest(number, known)
            self._asked[number] = self._study.ask()
        return Suggestion({}, dict(values))

    def tell(self, trial: SearchTrial) -> None:
        """Take the end of a trial."""
        from optuna.trial import TrialState

        asked = self._asked.pop(trial.number)
        with quietly():
            if trial.state == "failed" or not trial.params:
                self._study.tell(asked, state=TrialState.FAIL)
                return
            for step, value in trial.steps.items():
                asked.report(value, step)
            if trial.state == "pruned":
                self._study.tell(asked, state=TrialState.PRUNED)
            else:
                self._study.tell(asked, trial.value)

    def importances(self) -> tuple[dict[str, float], str]:
        """Return each option's share in what made the best trials good, or why there is none."""
        from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
        from optuna.trial import TrialState

        ended = self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        if len(ended) < LEAST_FOR_IMPORTANCE:
            return {}, f"needs {LEAST_FOR_IMPORTANCE} complete trials, there are {len(ended)}"
        if len({trial.value for trial in ended}) == 1:
            return {}, "every trial has the same value"
        varied = [a.key for a in self.axes if len({t.params.get(a.key) for t in ended}) > 1]
        everywhere = [key for key in varied if all(key in trial.params for trial in ended)]
        if not everywhere:
            return {}, "no option varies in every trial"
        try:
            with quietly():
                shares = get_param_importances(
                    self._study, evaluator=PedAnovaImportanceEvaluator(), params=everywhere
                )
        except (ValueError, RuntimeError, ZeroDivisionError) as error:
            return {}, f"cannot be told: {error}"
        shares = {key: float(share) for key, share in shares.items()}
        if not all(np.isfinite(share) for share in shares.values()) or not sum(shares.values()):
            return {}, "no option made a difference"
        return shares, "" if len(everywhere) == len(
            self.axes
        ) else "of options that all trials have"

    def write_journal(self, path: Path) -> None:
        """Write every trial as a journal that Optuna's tools read; it replaces the file in one step."""
        with quietly():
            write_bytes(path, journal_of(self._study).encode())

    # -- parts -----------------------------------------------------------------------------------

    def _sampler(self, number: int) -> BaseSampler:
        from optuna.samplers import CmaEsSampler, RandomSampler, TPESampler

        seed = int(np.random.SeedSequence([self.seed, number]).generate_state(1)[0])
        if self.sampler == "random":
            return RandomSampler(seed=seed)
        if self.sampler == "cmaes":
            sampler = CmaEsSampler(
                seed=seed,
                independent_sampler=RandomSampler(seed=seed),
                warn_independent_sampling=False,
                consider_pruned_trials=self.counts_pruned,
            )
            # else it would be what trials so far have in common, and a change of it ends the evolution
            space = {axis.key: _distribution(axis) for axis in self.axes if is_evolved(axis)}
            sampler.infer_relative_search_space = lambda study, trial: space
            return sampler
        return TPESampler(
            seed=seed,
            n_startup_trials=STARTUP_TRIALS,
            multivariate=True,
            group=True,  # options that only some trials have
            constant_liar=True,  # trials of one round keep apart
            warn_independent_sampling=False,
        )

    def _suggest(
        self, number: int, known: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    ) -> Suggestion:
        trial = self._study.ask()
        self._asked[number] = trial
        params: dict[str, Any] = {}
        values: dict[str, Any] = {}
        for axis in self.axes:
            if axis.when and not axis.applies_to(known(values)):
                continue
            params[axis.key] = _draw(trial, axis)
            values[axis.key] = _value_of(axis, params[axis.key])
        return Suggestion(params, values)

    def _params(
        self,
        values: Mapping[str, Any],
        known: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    ) -> dict[str, Any] | None:
        """Return values in Optuna's terms; None if they lie outside of the space."""
        params: dict[str, Any] = {}
        passed: dict[str, Any] = {}
        for axis in self.axes:
            if axis.when and not axis.applies_to(known(passed)):
                continue
            param = _param_of(axis, values[axis.key]) if axis.key in values else None
            if param is None:
                return None
            params[axis.key], passed[axis.key] = param, values[axis.key]
        return params


def _draw(trial: Trial, axis: Axis) -> Any:
    if axis.options:
        return trial.suggest_categorical(axis.key, labels_of(axis))
    if axis.is_whole:
        return trial.suggest_int(axis.key, int(axis.low), int(axis.high), log=axis.is_log)
    return trial.suggest_float(axis.key, axis.low, axis.high, log=axis.is_log)


def is_evolved(axis: Axis) -> bool:
    """Tell an option that CMA-ES can search: a range that every trial has. Others are drawn at random."""
    return not axis.options and not axis.when


def _distribution(axis: Axis) -> BaseDistribution:
    from optuna.distributions import FloatDistribution, IntDistribution

    if axis.is_whole:
        return IntDistribution(int(axis.low), int(axis.high), log=axis.is_log)
    return FloatDistribution(axis.low, axis.high, log=axis.is_log)


def _value_of(axis: Axis, param: Any) -> Any:
    if axis.options:
        return axis.options[labels_of(axis).index(param)]
    return param if axis.is_whole else axis.readable(param)


def _param_of(axis: Axis, value: Any) -> Any:
    if axis.options:
        matching = [n for n, option in enumerate(axis.options) if option == value]
        return labels_of(axis)[matching[0]] if matching else None
    if type(value) not in (int, float) or not axis.low <= value <= axis.high:
        return None
    if axis.is_whole:
        return int(value) if float(value).is_integer() else None
    return float(value)


def labels_of(axis: Axis) -> list[str]:
    """Name listed values: Optuna takes no lists as categories, and for it 1 and true are equal."""
    return [dump_yaml_value(option) for option in axis.options]


def _direction(mode: Mode) -> str:
    return "maximize" if mode == "max" else "minimize"
