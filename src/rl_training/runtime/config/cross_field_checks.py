"""Cross-field validation of `TrainConfig`: options that do not go together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_training.algorithms.registry import list_algorithm_specs
from rl_training.config import Problem
from rl_training.data.formats import get_format
from rl_training.data.offline_to_online_config import OfflineToOnlineConfig
from rl_training.data.replay_config import ReplayConfig
from rl_training.runtime.config.controls import ControlsConfig, metric_key, schedule_problems

if TYPE_CHECKING:  # `TrainConfig` checks itself with these functions
    from rl_training.runtime.config.train_config import Groups, TrainConfig

_VALIDATE = "without them, set validation_fraction and watch a validation/* metric"


def cross_problems(config: TrainConfig, groups: Groups) -> list[Problem]:
    """List all conflicts between options."""
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
    kind = groups.dataset.dataset_kind
    if config.env_id is None and kind is not None and get_format(kind).needs_env:
        message = f"{kind!r} rolls out an environment, but env_id is null"
        problems.append(Problem(("algo_kwargs", "dataset_kind"), message))
    return problems


def _offline_problems(config: TrainConfig) -> list[Problem]:
    """List options of collecting in offline training, where they have no effect."""
    problems = []
    if config.num_envs != 1:
        message = "offline training collects nothing; leave it at 1"
        problems.append(Problem(("num_envs",), message))
    for key in config.algo_kwargs:
        if key in ReplayConfig.model_fields or key in OfflineToOnlineConfig.model_fields:
            message = "has no effect offline; to go on online, set regime: offline_to_online"
            problems.append(Problem(("algo_kwargs", key), message))
    return problems


def _collecting_problems(config: TrainConfig, groups: Groups) -> list[Problem]:
    """List options that collecting cannot work with."""
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
    problems += [
        p.under("algo_kwargs") for p in _rollback_problems(config, groups.offline_to_online)
    ]
    if config.regime == "online" and groups.controls.max_epochs is not None:
        message = "counts passes over a dataset; online, set total_timesteps or max_updates"
        problems.append(Problem(("algo_kwargs", "max_epochs"), message))
    return problems


def _rollback_problems(config: TrainConfig, options: OfflineToOnlineConfig) -> list[Problem]:
    """List what `rollback_on_drop` lacks: it compares scores with that of an offline policy."""
    if options.rollback_on_drop is None:
        return []
    missing = []
    if config.eval_episodes == 0:
        missing.append("needs evaluations, but eval_episodes is 0")
    if options.offline_pretrain_updates == 0:
        missing.append("needs an offline policy to compare with, but offline_pretrain_updates is 0")
    return [Problem(("rollback_on_drop",), message) for message in missing]


def _goal_problems(config: TrainConfig, replay: ReplayConfig) -> list[Problem]:
    """List options that conflict with `her`, and those without effect unless it is set."""
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
        message = "logged transitions keep their goals; train online, or leave it out"
        problems.append(Problem(("her",), message))
    return problems


def _stopping_problems(config: TrainConfig, controls: ControlsConfig) -> list[Problem]:
    if controls.early_stopping is None:
        return []
    problems: list[Problem] = []
    path, watched = ("algo_kwargs", "early_stopping"), metric_key(controls.early_stopping.metric)
    validates = config.groups.dataset.validation_fraction is not None
    if watched.startswith("validation/") and not validates:
        message = "is measured on held-out episodes: set validation_fraction, such as 0.1"
        if config.regime == "online":
            message = f"is measured on held-out episodes of a dataset, and {config.algo} has none"
        problems.append(Problem((*path, "metric"), message))
    elif watched.startswith("eval/") or not validates:
        advice = "" if config.regime == "online" else f"; {_VALIDATE}"
        if config.eval_episodes == 0:
            problems.append(Problem(path, f"needs evaluations, but eval_episodes is 0{advice}"))
        if config.env_id is None:
            problems.append(Problem(path, f"needs evaluations, but env_id is null{advice}"))
    shaping = config.groups.env.evaluation.reward
    if watched == "eval/shaped_return_mean" and shaping.is_identity:
        message = "is measured only with env_kwargs.wrappers.reward"
        problems.append(Problem((*path, "metric"), message))
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
