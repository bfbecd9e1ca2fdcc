"""`TrainConfig`: everything a run depends on, checked as a whole when it is made."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import PrivateAttr

from rl_training.algorithms.base import AlgorithmConfig
from rl_training.algorithms.registry import (
    AlgorithmSpec,
    Regime,
    get_algorithm_spec,
    list_algorithm_specs,
)
from rl_training.config import ConfigError, Options, Problem, option, unknown_key
from rl_training.data.bridge_config import BridgeConfig
from rl_training.data.dataset_config import DatasetConfig
from rl_training.data.replay_config import ReplayConfig
from rl_training.envs.factory import parse_env_kwargs
from rl_training.runtime.controls import ControlsConfig, metric_key, schedule_problems


class Groups(NamedTuple):
    """The flat `algo_kwargs`, partitioned among those who declared the keys."""

    algorithm: AlgorithmConfig
    dataset: DatasetConfig
    controls: ControlsConfig
    replay: ReplayConfig
    bridge: BridgeConfig


# as Stable-Baselines3 spells them
ALIASES = {
    "buffer_size": "buffer_capacity",
    "train_freq": "train_frequency",
    "gradient_steps": "gradient_updates_per_step",
    "ent_coef": "alpha",
}


def group_classes(spec: AlgorithmSpec) -> dict[str, type[Options]]:
    """The groups of options that mean something to an algorithm."""
    groups: dict[str, type[Options]] = {"algorithm": spec.config}
    if spec.regimes != ("online",):
        groups["dataset"] = DatasetConfig
    if spec.regimes != ("offline",):
        groups["replay"] = spec.algorithm.replay
    if "offline_to_online" in spec.regimes:
        groups["bridge"] = spec.algorithm.bridge
    return {**groups, "controls": ControlsConfig}


class TrainConfig(Options):
    algo: str = option(doc="name of the algorithm")
    env_id: str | None = option(
        None, "a registered id or module:EnvName; null trains on logs alone", min_length=1
    )
    seed: int = option(0, "seed of every random stream", ge=0)
    total_timesteps: int = option(
        1_000_000, "budget: gradient updates offline, environment steps online", ge=1
    )
    output_dir: str = option("runs", "where run directories are created", min_length=1)
    device: str = option("auto", "cpu, cuda, cuda:0, ...; auto takes a GPU if there is one")
    num_envs: int = option(1, "environments that collect side by side", ge=1)
    eval_episodes: int = option(5, "episodes per evaluation; 0 = no evaluation", ge=0)
    log_interval: int = option(1_000, "steps between rows of metrics", ge=1)
    checkpoint_interval: int = option(10_000, "steps between checkpoints", ge=1)
    tags: tuple[str, ...] = option((), "words kept with the run")
    algo_kwargs: dict[str, Any] = option({}, "options of algorithm, dataset and controls")
    env_kwargs: dict[str, Any] = option(
        {}, "wrappers, training and evaluation overrides; the rest goes to gymnasium.make"
    )
    _groups: Groups = PrivateAttr()

    if not TYPE_CHECKING:

        def __init__(self, **values: Any) -> None:
            problems: list[Problem] = []
            for key in ("algo_kwargs", "env_kwargs"):
                if isinstance(values.get(key), Mapping):
                    try:
                        values[key] = _plain(values[key])
                    except ConfigError as error:
                        problems += [problem.under(key) for problem in error.problems]
            if isinstance(values.get("algo_kwargs"), Mapping):
                values["algo_kwargs"], found = _without_aliases(values["algo_kwargs"])
                problems += found
            try:
                super().__init__(**values)
            except ConfigError as error:
                problems += error.problems
            groups, found = _build_groups(values)
            problems += found
            if not problems:
                self._groups = groups
                problems += _cross_problems(self, groups)
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
        """Where `global_step` ends: updates of pretraining count, too, but not towards the total."""
        if self.regime != "offline_to_online":
            return self.total_timesteps
        return self.total_timesteps + self.groups.bridge.offline_pretrain_updates

    def replace(self, **changes: Any) -> TrainConfig:
        """A copy with other values, checked like a new one."""
        return TrainConfig(**{**self.as_dict(), **changes})

    def as_dict(self) -> dict[str, Any]:
        """Plain values for YAML and JSON, in the order of declaration."""
        return self.model_dump(mode="json")

    def with_absolute_paths(self) -> TrainConfig:
        """The same run from any directory: resume must find the data again."""
        return self.replace(algo_kwargs=_absolute(self.algo_kwargs))


def _plain(value: Any, *path: str) -> Any:
    """Tuples, paths and arrays as JSON and YAML know them, or an error: it must be saved."""
    if len(path) > 20:
        raise ConfigError([Problem(path[:2], "is nested too deeply")])
    if isinstance(value, Options):
        return value.model_dump(mode="json", exclude_unset=True)
    if isinstance(value, Mapping):
        return {str(key): _plain(entry, *path, str(key)) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry, *path, str(place)) for place, entry in enumerate(value)]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "tolist"):  # arrays, tensors and their scalars
        return value.tolist()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    message = f"must be numbers, text, lists or mappings, to be saved with the run; got {value!r}"
    raise ConfigError([Problem(path, message)])


def _without_aliases(given: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    problems = [
        Problem(("algo_kwargs", alias), f"is another name of {name}, which is given, too")
        for alias, name in ALIASES.items()
        if alias in given and name in given
    ]
    return {ALIASES.get(key, key): value for key, value in given.items()}, problems


def _absolute(values: dict[str, Any]) -> dict[str, Any]:
    done = dict(values)
    for key in ("dataset_path", "path"):
        if isinstance(done.get(key), str):
            done[key] = str(Path(done[key]).expanduser().absolute())
    if isinstance(done.get("dataset_mix"), list):
        done["dataset_mix"] = [_absolute(part) for part in done["dataset_mix"]]
    return done


def _build_groups(values: Mapping[str, Any]) -> tuple[Any, list[Problem]]:
    """Validate `algo_kwargs` and `env_kwargs` even if other keys are wrong."""
    problems: list[Problem] = []
    env_kwargs = values.get("env_kwargs") or {}
    if isinstance(env_kwargs, Mapping):
        try:
            parse_env_kwargs(env_kwargs)
        except ConfigError as error:
            problems += error.problems
    given = values.get("algo_kwargs") or {}
    if not isinstance(values.get("algo"), str) or not isinstance(given, Mapping):
        return None, problems
    try:
        spec = get_algorithm_spec(values["algo"])
    except ConfigError as error:
        return None, [*problems, *error.problems]
    classes = group_classes(spec)
    known = {key for cls in classes.values() for key in cls.model_fields}
    for key in given:
        if key not in known:
            problems.append(
                Problem(("algo_kwargs", str(key)), _not_an_option(str(key), spec, known))
            )
    built: dict[str, Any] = {
        "dataset": DatasetConfig(),
        "replay": ReplayConfig(),
        "bridge": BridgeConfig(),
    }
    for name, cls in classes.items():
        own = {key: value for key, value in given.items() if key in cls.model_fields}
        try:
            built[name] = cls(**own)
        except ConfigError as error:
            problems += [problem.under("algo_kwargs") for problem in error.problems]
    return (Groups(**built) if not problems else None), problems


def _not_an_option(key: str, spec: AlgorithmSpec, known: set[str]) -> str:
    if key in DatasetConfig.model_fields:
        return f"is for datasets, but {spec.name} collects its own data"
    if key in ReplayConfig.model_fields:
        return f"is for collecting, but {spec.name} trains on logged data alone"
    if key in BridgeConfig.model_fields:
        return f"is for going on online from logged data, but {spec.name} trains {spec.regimes[0]}"
    return unknown_key(key, known | set(TrainConfig.model_fields))


def _cross_problems(config: TrainConfig, groups: Groups) -> list[Problem]:
    """What single keys cannot see."""
    spec, controls = config.spec, groups.controls
    problems = [
        problem.under("algo_kwargs")
        for problem in schedule_problems(controls, spec.algorithm.losses)
    ]
    if controls.regime is not None and controls.regime not in spec.regimes:
        supported = ", ".join(spec.regimes)
        message = f"{config.algo} does not train {controls.regime} (it trains: {supported})"
        return [*problems, Problem(("algo_kwargs", "regime"), message)]
    if config.regime == "offline":
        problems += _offline_problems(config)
    else:
        problems += _collecting_problems(config, groups)
    problems += _stopping_problems(config, controls)
    if config.env_id is not None and groups.dataset.action_low is not None:
        message = f"the bounds of {config.env_id} are used; give it only without an env_id"
        problems.append(Problem(("algo_kwargs", "action_low"), message))
    if config.env_id is None and config.env_kwargs:
        problems.append(Problem(("env_kwargs",), "has no effect without an env_id"))
    if config.env_id is None and groups.dataset.dataset_kind == "random":
        message = "'random' rolls out an environment, but env_id is null"
        problems.append(Problem(("algo_kwargs", "dataset_kind"), message))
    return problems


def _offline_problems(config: TrainConfig) -> list[Problem]:
    """What is said about collecting, where nothing is collected."""
    problems = []
    if config.num_envs != 1:
        message = "offline training collects nothing; leave it at 1"
        problems.append(Problem(("num_envs",), message))
    for key in config.algo_kwargs:
        if key in ReplayConfig.model_fields or key in BridgeConfig.model_fields:
            message = "has no effect offline; to go on online, set regime: offline_to_online"
            problems.append(Problem(("algo_kwargs", key), message))
    return problems


def _collecting_problems(config: TrainConfig, groups: Groups) -> list[Problem]:
    """What stands in the way of collecting."""
    problems = []
    replay, batch_size = groups.replay, groups.algorithm.batch_size
    if config.env_id is None:
        problems.append(Problem(("env_id",), f"is required: {config.algo} collects data in it"))
    for least, whose in ((batch_size, "batch_size"), (config.num_envs, "num_envs")):
        if replay.buffer_capacity < least:
            message = f"must be >= {whose}, which is {least}; got {replay.buffer_capacity}"
            problems.append(Problem(("algo_kwargs", "buffer_capacity"), message))
    problems += _priority_problems(config, replay)
    problems += [problem.under("algo_kwargs") for problem in _goal_problems(config, replay)]
    if config.regime == "offline_to_online" and replay.n_step > 1:
        message = "logged data is learned from step by step; leave it at 1"
        problems.append(Problem(("algo_kwargs", "n_step"), message))
    problems += [p.under("algo_kwargs") for p in _rollback_problems(config, groups.bridge)]
    if config.regime == "online" and groups.controls.max_epochs is not None:
        message = "counts passes over a dataset; online, set total_timesteps or max_updates"
        problems.append(Problem(("algo_kwargs", "max_epochs"), message))
    if replay.vector_env == "async" and config.num_envs == 1:
        message = "a process for a single environment only costs time; set num_envs, too"
        problems.append(Problem(("algo_kwargs", "vector_env"), message))
    return problems


def _rollback_problems(config: TrainConfig, bridge: BridgeConfig) -> list[Problem]:
    """Without a score of an offline policy there is nothing that could fall."""
    if bridge.rollback_on_drop is None:
        return []
    lacking = []
    if config.eval_episodes == 0:
        lacking.append("needs evaluations, but eval_episodes is 0")
    if bridge.offline_pretrain_updates == 0:
        lacking.append("needs an offline policy to compare with, but offline_pretrain_updates is 0")
    return [Problem(("rollback_on_drop",), message) for message in lacking]


def _goal_problems(config: TrainConfig, replay: ReplayConfig) -> list[Problem]:
    """What does not go with `her`, and what means nothing without it."""
    if not replay.her:
        return [
            Problem((key,), "has no effect without her: true")
            for key in ("her_ratio", "goal_selection_strategy")
            if getattr(replay, key) != type(replay).model_fields[key].default
        ]
    problems = []
    if replay.n_step > 1:
        message = "her: true replaces the reward of one step; leave it at 1"
        problems.append(Problem(("n_step",), message))
    if replay.prioritized:
        message = "her: true draws uniformly, as an error belongs to a goal that is not drawn again"
        problems.append(Problem(("prioritized",), message))
    if config.regime != "online":
        problems.append(Problem(("her",), "logged data has no achieved goals; train online"))
    return problems


def _stopping_problems(config: TrainConfig, controls: ControlsConfig) -> list[Problem]:
    problems: list[Problem] = []
    if controls.early_stopping is not None:
        place = ("algo_kwargs", "early_stopping")
        if config.eval_episodes == 0:
            problems.append(Problem(place, "needs evaluations, but eval_episodes is 0"))
        if config.env_id is None:
            problems.append(Problem(place, "needs evaluations, but env_id is null"))
        shaping = parse_env_kwargs(config.env_kwargs).evaluation.reward
        shaped = metric_key(controls.early_stopping.metric) == "eval/shaped_return_mean"
        if shaped and shaping.is_identity:
            message = "is measured only with env_kwargs.wrappers.reward"
            problems.append(Problem((*place, "metric"), message))
    return problems


def _priority_problems(config: TrainConfig, replay: ReplayConfig) -> list[Problem]:
    problems = []
    if replay.prioritized and not config.spec.algorithm.gives_priorities:
        able = [spec.name for spec in list_algorithm_specs() if spec.algorithm.gives_priorities]
        message = f"{config.algo} draws uniformly (for {', '.join(able)} only)"
        problems.append(Problem(("algo_kwargs", "prioritized"), message))
    if not replay.prioritized:
        for key in ("priority_exponent", "priority_correction"):
            if getattr(replay, key) != type(replay).model_fields[key].default:
                problems.append(Problem(("algo_kwargs", key), "has no effect without prioritized"))
    return problems
