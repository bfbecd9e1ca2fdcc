"""`TrainConfig`: everything a run depends on, checked as a whole when it is made."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import PrivateAttr

from rl_training.algorithms.base import AlgorithmConfig
from rl_training.algorithms.registry import AlgorithmSpec, Regime, get_algorithm_spec
from rl_training.config import ConfigError, Options, Problem, option, unknown_key
from rl_training.data.dataset_config import DatasetConfig
from rl_training.data.offline_to_online_config import OfflineToOnlineConfig
from rl_training.data.replay_config import ReplayConfig
from rl_training.envs.env_config import EnvConfig, parse_env_kwargs
from rl_training.runtime.config.controls import ControlsConfig
from rl_training.runtime.config.cross_field_checks import cross_problems


class Groups(NamedTuple):
    """The flat `algo_kwargs`, split into the groups that declare the keys, and `env_kwargs`."""

    algorithm: AlgorithmConfig
    dataset: DatasetConfig
    controls: ControlsConfig
    replay: ReplayConfig
    offline_to_online: OfflineToOnlineConfig
    env: EnvConfig


# as Stable-Baselines3 spells them
ALIASES = {
    "buffer_size": "buffer_capacity",
    "train_freq": "train_frequency",
    "gradient_steps": "gradient_updates_per_step",
    "ent_coef": "alpha",
}


ENV_KEYS = ("wrappers", "training", "evaluation")  # of env_kwargs

# options of earlier versions, and what takes their place
REMOVED = {
    "eval_workers": "was removed: leave it out; for less waiting raise eval_interval or lower "
    "eval_episodes",
}


def without_removed_options(config: Mapping[str, Any]) -> dict[str, Any]:
    """Drop options that an earlier version saved in a checkpoint; none of them changes results."""
    kwargs = {key: value for key, value in config["algo_kwargs"].items() if key not in REMOVED}
    if kwargs.get("stepper") == "compiled":
        del kwargs["stepper"]
    return {**config, "algo_kwargs": kwargs}


def group_classes(spec: AlgorithmSpec) -> dict[str, type[Options]]:
    """Return the groups of options that apply to an algorithm."""
    groups: dict[str, type[Options]] = {"algorithm": spec.config}
    if spec.regimes != ("online",):
        groups["dataset"] = DatasetConfig
    if spec.regimes != ("offline",):
        groups["replay"] = spec.algorithm.replay
    if "offline_to_online" in spec.regimes:
        groups["offline_to_online"] = spec.algorithm.offline_to_online
    return {**groups, "controls": ControlsConfig}


class TrainConfig(Options):
    algo: str = option(doc="name of the algorithm")
    env_id: str | None = option(
        None,
        "a registered id or module:EnvName; null trains on logs alone",
        min_length=1,
        unset="none: logs alone",
    )
    seed: int = option(0, "seed of every random stream", ge=0)
    total_timesteps: int = option(
        1_000_000, "budget: gradient updates offline, environment steps online", ge=1
    )
    output_dir: str = option("runs", "where run directories are created", min_length=1)
    device: str = option("auto", "cpu, cuda, cuda:0, ...; auto takes a GPU if there is one")
    num_envs: int = option(1, "environments that collect side by side", ge=1)
    eval_episodes: int = option(5, "episodes per evaluation; 0 = no evaluation", ge=0, le=1_000_000)
    log_interval: int = option(1_000, "steps between rows of metrics", ge=1)
    checkpoint_interval: int = option(10_000, "steps between checkpoints", ge=1)
    tags: tuple[str, ...] = option((), "words kept with the run")
    algo_kwargs: dict[str, Any] = option({}, "options of algorithm, dataset and controls")
    env_kwargs: dict[str, Any] = option(
        {}, "wrappers, training and evaluation overrides; the rest goes to gymnasium.make"
    )
    _groups: Groups = PrivateAttr()

    if not TYPE_CHECKING:

        def __init__(self, /, **values: Any) -> None:
            problems: list[Problem] = []
            for key in ("algo_kwargs", "env_kwargs"):
                if isinstance(values.get(key), Mapping):
                    try:
                        values[key] = _plain(values[key])
                    except ConfigError as error:
                        problems += [problem.under(key) for problem in error.problems]
            if isinstance(values.get("algo_kwargs"), Mapping):
                values["algo_kwargs"], clashes = _without_aliases(values["algo_kwargs"])
                problems += clashes
            try:
                super().__init__(**values)
            except ConfigError as error:
                problems += [_placed(problem, values) for problem in error.problems]
            groups, group_problems = _build_groups(values)
            problems += group_problems
            if not problems:
                self._groups = groups
                problems += cross_problems(self, groups)
            if problems:
                raise ConfigError(problems)

    @property
    def groups(self) -> Groups:
        return self._groups

    @property
    def spec(self) -> AlgorithmSpec:
        return get_algorithm_spec(self.algo)

    @property
    def regime(self) -> Regime:
        return self.groups.controls.regime or self.spec.regimes[0]

    @property
    def budget(self) -> int:
        """Last `global_step`: `total_timesteps`, plus the updates of pretraining, which come on top."""
        if self.regime != "offline_to_online":
            return self.total_timesteps
        return self.total_timesteps + self.groups.offline_to_online.offline_pretrain_updates

    def replace(self, **changes: Any) -> TrainConfig:
        """Return a copy with other values, validated like a new one."""
        return TrainConfig(**{**self.as_dict(), **changes})

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for YAML and JSON, in the order of declaration."""
        return self.model_dump(mode="json")

    def with_absolute_paths(self) -> TrainConfig:
        """Return a copy that finds its data from any working directory, for a resume."""
        return self.replace(algo_kwargs=_absolute(self.algo_kwargs))


def _plain(value: Any, *path: str) -> Any:
    """Turn tuples, paths and arrays into values that YAML can hold, or raise."""
    if len(path) > 20:
        raise ConfigError([Problem(path[:2], "is nested too deeply")])
    if isinstance(value, Options):
        return value.model_dump(mode="json", exclude_unset=True)
    if isinstance(value, Mapping):
        return {str(key): _plain(entry, *path, str(key)) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry, *path, str(index)) for index, entry in enumerate(value)]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "tolist"):  # arrays, tensors and their scalars
        return value.tolist()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    message = f"must be numbers, text, lists or mappings, to be saved with the run; got {value!r}"
    raise ConfigError([Problem(path, message)])


def _without_aliases(kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    problems = [
        Problem(("algo_kwargs", alias), f"is another name of {name}, which is given, too")
        for alias, name in ALIASES.items()
        if alias in kwargs and name in kwargs
    ]
    return {ALIASES.get(key, key): value for key, value in kwargs.items()}, problems


def _absolute(values: dict[str, Any]) -> dict[str, Any]:
    absolute = dict(values)
    for key in ("dataset_path", "path"):
        if isinstance(absolute.get(key), str):
            absolute[key] = str(Path(absolute[key]).expanduser().absolute())
    if isinstance(absolute.get("dataset_mix"), list):
        absolute["dataset_mix"] = [_absolute(part) for part in absolute["dataset_mix"]]
    return absolute


def _build_groups(values: Mapping[str, Any]) -> tuple[Any, list[Problem]]:
    """Validate `algo_kwargs` and `env_kwargs` even if other keys are wrong."""
    problems: list[Problem] = []
    env_kwargs = values.get("env_kwargs") or {}
    env = EnvConfig()
    if isinstance(env_kwargs, Mapping):
        try:
            env = parse_env_kwargs(env_kwargs)
        except ConfigError as error:
            problems += error.problems
    kwargs = values.get("algo_kwargs") or {}
    if not isinstance(values.get("algo"), str) or not isinstance(kwargs, Mapping):
        return None, problems
    try:
        spec = get_algorithm_spec(values["algo"])
    except ConfigError as error:
        return None, [*problems, *error.problems]
    classes = group_classes(spec)
    valid = option_names(spec)
    for key in kwargs:
        if key not in valid:
            problems.append(
                Problem(("algo_kwargs", str(key)), not_an_option(str(key), spec, valid))
            )
    built: dict[str, Any] = {
        "dataset": DatasetConfig(),
        "replay": ReplayConfig(),
        "offline_to_online": OfflineToOnlineConfig(),
    }
    for name, cls in classes.items():
        options = {key: value for key, value in kwargs.items() if key in cls.model_fields}
        try:
            built[name] = cls(**options)
        except ConfigError as error:
            problems += [problem.under("algo_kwargs") for problem in error.problems]
    return (Groups(**built, env=env) if not problems else None), problems


def option_names(spec: AlgorithmSpec) -> set[str]:
    """Names of all options that `algo_kwargs` of an algorithm may have."""
    return {key for group in group_classes(spec).values() for key in group.model_fields}


def _placed(problem: Problem, values: Mapping[str, Any]) -> Problem:
    """Say where a key at the top level belongs that is an option of the algorithm."""
    key = ALIASES.get(problem.path[0], problem.path[0]) if problem.path else ""
    if key in TrainConfig.model_fields:
        return problem
    if key in ENV_KEYS:
        return Problem(problem.path, f"belongs under env_kwargs: env_kwargs: {{{key}: ...}}")
    try:
        names = option_names(get_algorithm_spec(str(values.get("algo"))))
    except ConfigError:
        return problem
    if key not in names:
        return problem
    shown = _shortened(values.get(problem.path[0]))
    return Problem(problem.path, f"belongs under algo_kwargs: algo_kwargs: {{{key}: {shown}}}")


def _shortened(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else "..."


def not_an_option(key: str, spec: AlgorithmSpec, valid: set[str]) -> str:
    """Say why an algorithm does not take this key."""
    if key in REMOVED:
        return REMOVED[key]
    if key in DatasetConfig.model_fields:
        return (
            f"is for datasets, but {spec.name} collects its own data; `rl-training list` shows which "
            "algorithms learn from logs"
        )
    if key in ReplayConfig.model_fields:
        return f"is for collecting, but {spec.name} trains on logged data alone"
    if key in OfflineToOnlineConfig.model_fields:
        return f"is for going on online from logged data, but {spec.name} trains {spec.regimes[0]}"
    return unknown_key(key, valid | set(TrainConfig.model_fields))
