"""Description of a search: a configuration, the space around it, and what a point is judged by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from pydantic import field_validator

from rl_training.config import (
    ConfigError,
    Options,
    Problem,
    dump_yaml_value,
    option,
)
from rl_training.runs.search_record import Mode, SearchRecord
from rl_training.runtime.config.files import apply_overrides, read_config_values
from rl_training.runtime.config.train_config import TrainConfig
from rl_training.runtime.trust import check_trusted, trust
from rl_training.sweeps.axes import BASE, Axis, parse_axes
from rl_training.sweeps.description import Trial, make_trial
from rl_training.sweeps.executor import Judging
from rl_training.sweeps.pruning import Pruner, rungs_of
from rl_training.sweeps.running import check_problems
from rl_training.sweeps.search_metrics import choose_metric, gamma_of, judging_of
from rl_training.sweeps.spaces import read_space
from rl_training.sweeps.suggestions import Sampler, is_evolved

if TYPE_CHECKING:
    from typing_extensions import Unpack

MAX_SEEDS = 1_000
_OWN_KEYS = ("seed", "output_dir", BASE)  # the search sets them itself
# keys that move the steps at which trials are compared
_PACE = (
    "total_timesteps", "eval_interval", "max_updates", "max_epochs", "regime", "offline_pretrain_updates",
)  # fmt: skip


class SearchConfig(Options):
    """Settings of a search, as its record keeps them."""

    config: dict[str, Any] = option(doc="configuration that every trial changes")
    axes: dict[str, Any] = option(doc="values by key", min_length=1)
    metric: str = option("eval/return_mean", "what a trial is judged by")
    mode: Mode | None = option(None, "whether more or less of it is better", unset="as known")
    sampler: Sampler = option("tpe", "how points are suggested")
    pruner: Pruner = option("none", "how trials that look bad are ended early")
    seeds: tuple[int, ...] = option((1, 2, 3), "seeds of every trial", min_length=1)
    fresh_seeds: int = option(5, "seeds of the final score, none of the above", ge=0, le=MAX_SEEDS)
    sample_seed: int = option(0, "seed of the suggestions", ge=0)
    round_size: int | None = option(
        None, "trials that are suggested together", ge=1, le=10_000, unset="jobs of the first call"
    )
    fqe_updates: int = option(10_000, "gradient updates of each fit of ope/fqe", ge=20)

    @field_validator("seeds")
    @classmethod
    def _seeds_are_distinct(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(seeds)) != len(seeds) or min(seeds) < 0 or len(seeds) > MAX_SEEDS:
            raise ValueError(
                f"must be distinct and not negative, {MAX_SEEDS:,} at most, got {list(seeds)[:20]}"
            )
        return seeds


class SearchOptions(TypedDict, total=False):
    """Settings of a search besides configuration and space, for type checkers and editors."""

    metric: str
    mode: Mode | None
    sampler: Sampler
    pruner: Pruner
    seeds: Sequence[int]
    fresh_seeds: int
    sample_seed: int
    round_size: int | None
    fqe_updates: int


class Search:
    """A search over configurations; it checks its description.

    Args:
        config: A packaged name, a file, a configuration or its values.
        space: A file, a packaged name, or `{"axes": ...}`; the packaged space of the algorithm by default.
        overrides: Keys that are the same in every trial.
        settings: Other fields of `SearchConfig`.
    """

    def __init__(
        self,
        config: str | Path | TrainConfig | Mapping[str, Any],
        space: str | Path | Mapping[str, Any] | None = None,
        *,
        overrides: Mapping[str, Any] | None = None,
        **settings: Unpack[SearchOptions],
    ) -> None:
        self.config = _base(config, overrides or {}).with_absolute_paths()
        values = read_space(self.config.algo if space is None else space)
        given = SearchConfig(config=self.config.as_dict(), axes=values, **settings)
        self.axes = parse_axes(values)
        self.metric = choose_metric(given.metric, given.mode, self.config)
        self.settings = given.model_copy(
            update={"metric": self.metric.name, "mode": self.metric.mode}
        )
        problems = [
            Problem(("axes", axis.key), "is set by the search itself")
            for axis in self.axes
            if axis.key in _OWN_KEYS
        ]
        if given.sampler == "cmaes" and sum(map(is_evolved, self.axes)) < 2:
            message = "cmaes needs two or more ranges without a condition; take tpe"
            problems.append(Problem(("sampler",), message))
        if given.pruner != "none":
            problems += self._pruning_problems()
        if problems:
            raise ConfigError(problems)

    @classmethod
    def from_record(
        cls, record: SearchRecord, directory: Path, *, trust_env: bool = False
    ) -> Search:
        """Take up a search that was begun before; its environment must be trusted as that of a checkpoint."""
        try:
            settings = SearchConfig(**record.settings)
            config = TrainConfig(**settings.config)
        except ConfigError as error:
            raise ConfigError([p.under(str(directory)) for p in error.problems]) from None
        if trust_env:
            trust(config.env_id)
        check_trusted(config.env_id, directory)
        return cls._from_settings(settings)

    @classmethod
    def _from_settings(cls, settings: SearchConfig) -> Search:
        others = settings.model_dump(mode="json", exclude={"config", "axes"})
        return cls(settings.config, {"axes": settings.axes}, **others)

    def with_round_size(self, size: int) -> Search:
        """Return a copy that suggests so many trials together."""
        return self._from_settings(SearchConfig(**{**self.as_dict(), "round_size": size}))

    def as_dict(self) -> dict[str, Any]:
        """Return the settings as JSON values."""
        return self.settings.model_dump(mode="json")

    @property
    def round_size(self) -> int:
        """Return how many trials are suggested together."""
        return self.settings.round_size or 1

    @cached_property
    def rungs(self) -> tuple[int, ...]:
        """Return the steps at which trials may be pruned."""
        interval = self.config.groups.controls.eval_interval
        return rungs_of(self.settings.pruner, self.config.budget, interval)

    @cached_property
    def start(self) -> dict[str, Any]:
        """Return the values that the configuration itself has for the axes."""
        options: dict[str, Any] = {}
        for group in self.config.groups[:-1]:  # the last one is of the environment
            assert isinstance(group, Options)
            options |= group.model_dump(mode="json")
        options |= self.known({})
        start: dict[str, Any] = {}
        for axis in self.axes:
            if axis.when and not axis.applies_to(self.known(start)):
                continue
            key = axis.key.removeprefix("algo_kwargs.")
            if key in options:
                start[axis.key] = options[key]
        return start

    @property
    def fresh_seeds(self) -> tuple[int, ...]:
        """Return seeds that no trial has."""
        first = max(self.settings.seeds) + 1
        return tuple(range(first, first + self.settings.fresh_seeds))

    def known(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the keys that conditions may name, dotted and bare, at a point."""
        base = self.config.as_dict()
        kwargs = base["algo_kwargs"]
        dotted = {f"algo_kwargs.{key}": value for key, value in kwargs.items()}
        bare = {key.removeprefix("algo_kwargs."): value for key, value in values.items()}
        return {**base, **kwargs, **dotted, **bare, **values}

    def configure(self, values: Mapping[str, Any]) -> TrainConfig:
        """Make the configuration of a point; a `ConfigError` says why there is none."""
        return TrainConfig(**apply_overrides(self.config.as_dict(), values))

    def runs(
        self, values: Mapping[str, Any], directory: Path, seeds: Sequence[int] | None = None
    ) -> list[Trial]:
        """Make the runs of a point, one for each seed."""
        config = self.configure(values)
        chosen = self.settings.seeds if seeds is None else seeds
        return [make_trial(config.replace(seed=seed), directory, values) for seed in chosen]

    def judging(self, config: TrainConfig, directory: Path) -> Judging:
        """Describe how a run is judged, for the metric ope/fqe."""
        return judging_of(config, gamma_of(self.config), directory, self.settings.fqe_updates)

    def check(self, directory: Path) -> None:
        """Refuse a space with impossible values, and environments and logs that are not there."""
        problems: dict[Problem, list[str]] = {}
        trials: list[Trial] = self.runs({}, directory, self.settings.seeds[:1])
        for point in self.extremes():
            try:
                trials += self.runs(point, directory, self.settings.seeds[:1])
            except ConfigError as error:
                where = ", ".join(f"{key}={dump_yaml_value(value)}" for key, value in point.items())
                for problem in error.problems:
                    problems.setdefault(problem, []).append(where)
        if problems:
            raise ConfigError(
                [Problem(p.path, f"{p.message} (at {at[0]})") for p, at in problems.items()]
            )
        check_problems(trials)
        if self.metric.is_judged:
            for trial in trials:
                self.judging(trial.config, directory)

    def _pruning_problems(self) -> list[Problem]:
        problems = []
        if not self.metric.is_evaluated:
            message = (
                f"{self.settings.pruner} needs a metric of evaluations, eval/* or validation/*; "
                f"{self.metric.name} has no intermediate values"
            )
            problems.append(Problem(("pruner",), message))
        problems += [
            Problem(("axes", axis.key), "moves the steps at which trials are compared: leave it out, or search with --pruner none")
            for axis in self.axes
            if axis.key.removeprefix("algo_kwargs.") in _PACE
        ]  # fmt: skip
        if not self.rungs:
            message = (
                f"no evaluation lies inside the budget of {self.config.budget}: lower eval_interval, "
                f"which is {self.config.groups.controls.eval_interval}"
            )
            problems.append(Problem(("pruner",), message))
        return problems

    def extremes(self) -> Iterator[dict[str, Any]]:
        """Yield points that are valid only if every value of every axis is possible on its own."""
        for axis in self.axes:
            reached = self._point_with(axis)
            if reached is None:
                continue
            for value in axis.extremes():
                yield {**reached, axis.key: value}

    def _point_with(self, axis: Axis) -> dict[str, Any] | None:
        """Return values under which the conditions of an axis hold; None if they never do."""
        point: dict[str, Any] = {}
        for key, allowed in axis.when.items():
            other = next((other for other in self.axes if other.key == key), None)
            if other is None:
                continue
            possible = [value for value in other.extremes() if value in allowed]
            before = self._point_with(other)
            if not possible or before is None:
                return None
            point |= {**before, key: possible[0]}
        return point if axis.applies_to(self.known(point)) else None


def _base(
    config: str | Path | TrainConfig | Mapping[str, Any], overrides: Mapping[str, Any]
) -> TrainConfig:
    if isinstance(config, TrainConfig):
        values: Mapping[str, Any] = config.as_dict()
    elif isinstance(config, Mapping):
        values = config
    else:
        values = read_config_values(config)
    return TrainConfig(**apply_overrides(values, overrides))
