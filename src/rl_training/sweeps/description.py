"""Description of a sweep: base configurations, axes, points and seeds; and the trials that they make.

base: td3_bc/pendulum                  # a packaged name, a file, a mapping, or a list of these
overrides: {total_timesteps: 2_000}    # of every run
axes:                                  # see `axes`; every combination of listed values
tau: [0.005, 0.01]
bc_alpha: {log_uniform: [0.5, 10]}
samples: 8                             # draws of each combination, from the axes that are ranges
points: [{gamma: 0.9}, {gamma: 0.99}]  # combinations written out; axes cross them
seeds: [1, 2, 3]
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from pydantic import field_validator

from rl_training.config import ConfigError, Options, Problem, dump_yaml_value, option, parse_yaml
from rl_training.runs.layout import run_name
from rl_training.runtime.config.files import apply_overrides, read_config_text, read_config_values
from rl_training.runtime.config.train_config import TrainConfig
from rl_training.sweeps.axes import BASE, Axis, parse_axes

if TYPE_CHECKING:
    from typing_extensions import Unpack

MAX_TRIALS = 10_000
_KEY_CHARACTERS = 10  # of the digest in a trial's name


class SweepConfig(Options):
    """Content of a sweep file."""

    base: str | dict[str, Any] | tuple[str | dict[str, Any], ...] = option(
        doc="a packaged name, a file or a mapping; a list of these is the first axis"
    )
    overrides: dict[str, Any] = option({}, "keys that are the same in every run")
    axes: dict[str, Any] = option({}, "values by key: a list, or a range to draw from")
    points: tuple[dict[str, Any], ...] = option((), "combinations of keys, written out")
    samples: int = option(1, "draws from the axes that are ranges, for each combination", ge=1)
    sample_seed: int = option(0, "seed of these draws", ge=0)
    seeds: tuple[int, ...] = option((), "seeds of every point; none = the seed of the base")

    @field_validator("seeds", mode="before")
    @classmethod
    def _seeds_are_a_list(cls, value: Any) -> Any:
        if isinstance(value, int) and not isinstance(value, bool):
            listed = ", ".join(map(str, range(min(max(value, 2), 5))))
            raise ValueError(f"write [{value}] for one seed, or [{listed}] for several")
        return value

    @field_validator("seeds")
    @classmethod
    def _seeds_are_distinct(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(seeds)) != len(seeds):
            raise ValueError(f"must be distinct, got {list(seeds)}")
        return seeds


class SweepOptions(TypedDict, total=False):
    """Keys of a sweep file besides `base`, for type checkers and editors."""

    overrides: Mapping[str, Any]
    axes: Mapping[str, Any]
    points: Sequence[Mapping[str, Any]]
    samples: int
    sample_seed: int
    seeds: Sequence[int]


@dataclass(frozen=True)
class Trial:
    """One run of a sweep: its name, which is that of its directory, and its configuration."""

    name: str
    config: TrainConfig
    differs: Mapping[str, Any] = field(default_factory=dict)  # the axes' values, without the seed

    @property
    def label(self) -> str:
        """Return the values of the axes and the seed in words."""
        words = [f"{key}={dump_yaml_value(value)}" for key, value in self.differs.items()]
        return " ".join([*words, f"seed={self.config.seed}"])


def make_trial(config: TrainConfig, output_dir: Path, differs: Mapping[str, Any]) -> Trial:
    """Name a trial after its configuration, so that the same configuration is the same trial."""
    config = config.replace(output_dir=str(output_dir)).with_absolute_paths()
    values = {key: value for key, value in config.as_dict().items() if key != "output_dir"}
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
    name = run_name(config.algo, config.env_id, config.seed, digest[:_KEY_CHARACTERS])
    return Trial(name, config, dict(differs))


@dataclass(frozen=True)
class Base:
    """Configuration that points change, and how the file names it."""

    name: str
    values: Mapping[str, Any]


class Sweep:
    """Many runs: base configurations crossed with points, axes and seeds; arguments are the keys of a sweep file."""

    def __init__(
        self,
        /,  # a file may have any key
        base: str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]],
        **options: Unpack[SweepOptions],
    ) -> None:
        self.config = SweepConfig(base=base, **options)
        self.axes = parse_axes(self.config.axes)
        entries = self.config.base if isinstance(self.config.base, tuple) else (self.config.base,)
        problems = list(_contradictions(self.config, self.axes))
        if not entries:
            problems.append(Problem((BASE,), "must be at least one configuration"))
        if problems:
            raise ConfigError(problems)
        self.bases = _distinct(map(_read_base, entries))

    @classmethod
    def from_file(cls, name: str | Path, overrides: Mapping[str, Any] | None = None) -> Sweep:
        """Read a sweep file; `overrides` go before those in the file."""
        text, origin = read_config_text(name)
        return cls.from_text(text, origin, overrides)

    @classmethod
    def from_text(cls, text: str, origin: str, overrides: Mapping[str, Any] | None = None) -> Sweep:
        values = parse_yaml(text, origin)
        if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
            raise ConfigError(
                f"{origin} must be a mapping with the keys of a sweep: base, axes, ..."
            )
        if BASE not in values and "algo" in values:
            raise ConfigError(
                f"{origin} is the configuration of one run; a sweep file names it: `base: {origin}`"
            )
        if BASE not in values:
            raise ConfigError(
                [Problem((origin, BASE), "is required: the configuration to start from")]
            )
        shared = values.get("overrides") or {}
        if overrides and isinstance(shared, Mapping):
            values["overrides"] = {**shared, **overrides}
        try:
            return cls(**values)
        except ConfigError as error:
            raise ConfigError([problem.under(origin) for problem in error.problems]) from None

    def as_dict(self) -> dict[str, Any]:
        """Return the description as it stands in a file."""
        return self.config.model_dump(mode="json", exclude_unset=True)

    def trials(self, output_dir: str | Path) -> list[Trial]:
        """Make every trial; a `ConfigError` names each problem of any of them once."""
        directory = Path(output_dir).expanduser().absolute()
        trials: dict[str, Trial] = {}
        problems: dict[Problem, list[str]] = {}
        points = list(itertools.islice(self._points(), MAX_TRIALS + 1))
        if len(points) * max(1, len(self.config.seeds)) > MAX_TRIALS:
            raise ConfigError(
                f"more than {MAX_TRIALS:,} runs: list fewer values, or draw `samples`"
            )
        self._check_conditions(point for _, point in points)
        for base, point in points:
            try:
                configs = self._configs(base, point)
            except ConfigError as error:
                words = ", ".join(f"{key}={dump_yaml_value(value)}" for key, value in point.items())
                for problem in error.problems:
                    problems.setdefault(problem, []).append(words or "the base configuration")
                continue
            for config in configs:
                trial = make_trial(config, directory, point)
                trials.setdefault(trial.name, trial)
        if problems:
            raise ConfigError([_at_points(problem, at) for problem, at in problems.items()])
        return list(trials.values())

    def _check_conditions(self, points: Iterable[Mapping[str, Any]]) -> None:
        """Refuse an axis that no point has: its condition misspells a key, or names one that nothing sets."""
        unused = {axis.key: axis for axis in self.axes if axis.when}
        for point in points:
            unused = {key: axis for key, axis in unused.items() if key not in point}
        problems = [
            Problem(
                ("axes", axis.key, "when"),
                f"holds in no run: a base or an axis before it must set {' and '.join(axis.when)}",
            )
            for axis in unused.values()
        ]
        if problems:
            raise ConfigError(problems)

    def _configs(self, base: Base, point: Mapping[str, Any]) -> list[TrainConfig]:
        config = TrainConfig(**self._values(base, point))
        return [config.replace(seed=seed) for seed in self.config.seeds or (config.seed,)]

    def _values(self, base: Base, point: Mapping[str, Any]) -> dict[str, Any]:
        values = {key: value for key, value in point.items() if key != BASE}
        return apply_overrides(base.values, {**self.config.overrides, **values})

    def _points(self) -> Iterator[tuple[Base, dict[str, Any]]]:
        """Yield each base with the values of its axes."""
        for base in self.bases:
            named = {BASE: base.name} if len(self.bases) > 1 else {}
            for written in self.config.points or ({},):
                shared = {**named, **written}
                for number in range(
                    self.config.samples if any(a.is_drawn for a in self.axes) else 1
                ):
                    for point in self._along(self.axes, base, shared, number):
                        yield base, point

    def _along(
        self, axes: Sequence[Axis], base: Base, point: dict[str, Any], number: int
    ) -> Iterator[dict[str, Any]]:
        """Yield `point` with every combination of the values of the remaining axes."""
        if not axes:
            yield point
            return
        axis, *rest = axes
        if axis.when and not axis.applies_to(self._known_values(base, point)):
            yield from self._along(rest, base, point, number)
            return
        drawn = (axis.draw(self.config.sample_seed, number),) if axis.is_drawn else axis.options
        for value in drawn:
            yield from self._along(rest, base, {**point, axis.key: value}, number)

    def _known_values(self, base: Base, point: Mapping[str, Any]) -> dict[str, Any]:
        """Return the keys that conditions may name: of the configuration, dotted and bare, and `base`."""
        merged = self._values(base, point)
        kwargs = merged.get("algo_kwargs") or {}
        dotted = {f"algo_kwargs.{key}": value for key, value in kwargs.items()}
        return {BASE: base.name, **merged, **kwargs, **dotted, **self.config.overrides, **point}


def _contradictions(config: SweepConfig, axes: Sequence[Axis]) -> Iterator[Problem]:
    """Find keys that are given in two places, or that have no effect."""
    in_axes = {axis.key for axis in axes}
    in_points = set().union(*config.points)
    given = {("axes", key) for key in in_axes} | {("points", key) for key in in_points}
    for place, key in sorted(given | {("overrides", key) for key in config.overrides}):
        if key == BASE:
            yield Problem((place, key), "several base configurations are a list: `base: [...]`")
        elif key == "output_dir" or (key == "seed" and (place != "overrides" or config.seeds)):
            yield Problem((place, key), "is set by the sweep: give `seeds`, or the directory")
        elif place == "overrides" and key in in_axes | in_points:
            yield Problem((place, key), "is the same in every run, but an axis or point varies it")
        elif place == "axes" and key in in_points:
            yield Problem((place, key), "is also set by `points`")
    if config.samples > 1 and not any(axis.is_drawn for axis in axes):
        yield Problem(("samples",), "has no effect: no axis is drawn; give one a range or `choice`")


def _distinct(bases: Iterable[Base]) -> tuple[Base, ...]:
    """Number bases of the same name, as mappings of the same algorithm have."""
    listed = list(bases)
    counts, numbers = Counter(base.name for base in listed), Counter[str]()
    named = []
    for base in listed:
        numbers[base.name] += 1
        ending = f" ({numbers[base.name]})" if counts[base.name] > 1 else ""
        named.append(Base(base.name + ending, base.values))
    return tuple(named)


def _read_base(entry: str | dict[str, Any]) -> Base:
    if isinstance(entry, str):
        return Base(entry, read_config_values(entry))
    return Base(str(entry.get("algo")), entry)


def _at_points(problem: Problem, points: Sequence[str]) -> Problem:
    """Say at which points a problem is."""
    shown = "; ".join(itertools.islice(dict.fromkeys(points), 2))
    more = len(dict.fromkeys(points)) - 2
    return Problem(
        problem.path, f"{problem.message} (at {shown}{f' and {more} more' if more > 0 else ''})"
    )
