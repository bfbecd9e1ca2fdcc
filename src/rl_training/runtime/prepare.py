"""Preparation of training data: load, check against the problem, scale and normalise."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np

from rl_training.algorithms.registry import AlgorithmSpec, list_algorithm_specs
from rl_training.config import ConfigError, DatasetError, EnvError, Problem
from rl_training.data.checks.action_checks import looks_normalised
from rl_training.data.dataset_config import DatasetChoice, DatasetConfig
from rl_training.data.dataset_loaders import load_transition_dataset
from rl_training.data.formats import get_format, list_formats
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.offline_mixers import mix_transition_datasets
from rl_training.data.transitions.normalizer import ObservationNormalizer
from rl_training.envs.errors import closing, naming_the_env
from rl_training.envs.factory import make_env, make_raw_env
from rl_training.envs.goals import without_goals
from rl_training.envs.spaces import infer_env_spaces
from rl_training.runtime.config.train_config import TrainConfig
from rl_training.runtime.seeding import stream_seed
from rl_training.spec import ProblemSpec

log = logging.getLogger("rl_training")


@dataclass(frozen=True)
class PreparedDataset:
    """Dataset before and after scaling and normalisation."""

    raw: TransitionDataset  # environment units, rewards transformed
    learning: TransitionDataset  # actions in [-1, 1], observations normalised


@dataclass(frozen=True)
class TrainingData:
    """Problem, data, and the statistics that must travel with the policy."""

    spec: ProblemSpec
    dataset: PreparedDataset | None = None  # none for a learner that collects all of its data
    normalizer: ObservationNormalizer | None = None
    reward_scale: float = 1.0  # of the return-range normalisation; 1 without it
    shaped_log: bool = True  # logged rewards pass through the environment's reward wrappers

    @property
    def source(self) -> dict[str, Any]:
        """Identify the dataset, for a checkpoint."""
        if self.dataset is None:
            return {}
        raw = self.dataset.raw
        return {"source": raw.source, "sha256": raw.sha256, "shaped": self.shaped_log}


def build_offline_dataset(
    config: TrainConfig, dataset: TransitionDataset | None = None, *, shaped_log: bool = True
) -> TransitionDataset:
    """Load the configured dataset, or take the caller's, and apply `top_fraction`.

    Rewards are raw; `prepare` shapes them. Without `shaped_log`, random data are collected shaped.
    """
    options = config.groups.dataset
    if dataset is None:
        if options.dataset_mix is not None:
            parts = [_load(config, part, shaped_log) for part in options.dataset_mix]
            weights = [part.weight for part in options.dataset_mix]
            dataset = mix_transition_datasets(parts, weights)
        else:
            dataset = _load(config, options, shaped_log)
    for note in dataset.notes:
        log.info("%s: %s", dataset.source, note)
    if options.top_fraction is not None:
        before = len(dataset.episode_returns)
        dataset = dataset.top_episodes(options.top_fraction)
        log.info("top_fraction: kept %d of %d episodes", len(dataset.episode_returns), before)
    return dataset


def _load(config: TrainConfig, choice: DatasetChoice, shaped_log: bool) -> TransitionDataset:
    if choice.dataset_kind is None:
        path = ("algo_kwargs", "dataset_kind")
        names = ", ".join(entry.name for entry in list_formats())
        message = f"is required ({names}), or pass dataset= to learn"
        raise ConfigError([Problem(path, message)])
    options = choice.chosen_keys()
    dataset_format = get_format(choice.dataset_kind)
    if "dataset_seed" in dataset_format.keys:
        options.setdefault("dataset_seed", stream_seed(config.seed, "dataset") % 2**31)
    in_memory = config.groups.dataset.dataset_in_memory
    if not in_memory and "dataset_in_memory" in dataset_format.keys:
        options["dataset_in_memory"] = False  # of a mixture, all parts
    if not dataset_format.needs_env:
        return load_transition_dataset(dataset_format.name, **options)
    assert config.env_id is not None
    make = make_raw_env if shaped_log else make_env
    env = without_goals(make(config.env_id, config.groups.env))
    with closing(env, config.env_id), naming_the_env(config.env_id):
        return load_transition_dataset(dataset_format.name, env=env, **options)


def prepare(
    config: TrainConfig,
    dataset: TransitionDataset,
    *,
    spec: ProblemSpec | None = None,
    normalizer: ObservationNormalizer | None = None,
    reward_scale: float | None = None,
    shaped_log: bool = True,
) -> TrainingData:
    """Check data, problem and algorithm against each other; scale and normalise.

    Values of a checkpoint (`spec`, `normalizer`, `reward_scale`) are used instead of measured ones;
    `shaped_log` is false for one of a version whose reward wrappers left logs alone.
    """
    options = config.groups.dataset
    resumed = spec is not None
    if spec is None:
        spec = infer_env_spaces(config.env_id, config.groups.env) if config.env_id else None
    check_action_kind(config.spec, spec, dataset, config.env_id)
    if spec is None:
        spec = spec_from_data(dataset, options)
    _check_widths(dataset, spec, config.env_id)
    _check_bounds(dataset, spec, options)

    algorithm = config.spec.algorithm
    if algorithm.needs_next_actions(config.groups.algorithm):
        dataset = dataset.with_valid_next_actions()
    raw, reward_scale = _with_rewards(config, dataset, reward_scale, shaped_log)
    learning = raw
    if spec.action_kind == "continuous":
        learning = raw.with_action_scaling(spec.action_low, spec.action_high)
    if options.clip_actions:
        learning = learning.with_action_clipping()
    wanted = _choice(options.normalize_observations, algorithm.normalizes_observations)
    if wanted and normalizer is None and not resumed:
        normalizer = ObservationNormalizer(*dataset.observation_statistics())
    if normalizer is not None:
        learning = learning.with_observation_normalization(normalizer.mean, normalizer.std)
    if algorithm.needs_returns(config.groups.algorithm):
        learning = learning.with_returns(getattr(config.groups.algorithm, "gamma", 1.0))
    return TrainingData(spec, PreparedDataset(raw, learning), normalizer, reward_scale, shaped_log)


def _with_rewards(
    config: TrainConfig, dataset: TransitionDataset, reward_scale: float | None, shaped_log: bool
) -> tuple[TransitionDataset, float]:
    """Return the data with the rewards that are learned from, and the factor of their returns."""
    options = config.groups.dataset
    if shaped_log:
        dataset = dataset.with_wrapper_rewards(**config.groups.env.training.reward.model_dump())
    if reward_scale is None:
        wanted = _choice(options.normalize_rewards, config.spec.algorithm.normalizes_rewards)
        reward_scale = dataset.return_range_scale() if wanted else 1.0
    transformed = dataset.with_reward_transform(scale=reward_scale).with_reward_transform(
        scale=options.reward_scale,
        shift=options.reward_shift,
        clip_min=options.reward_clip_min,
        clip_max=options.reward_clip_max,
    )
    return transformed, reward_scale


def prepare_online(config: TrainConfig, spec: ProblemSpec | None = None) -> TrainingData:
    """Read the problem from its environment, for a learner that collects all of its data."""
    assert config.env_id is not None
    spaces = infer_env_spaces(config.env_id, config.groups.env)
    if spec is not None and not spaces.fits(spec):
        raise EnvError(f"{config.env_id} ({spaces}) does not fit the policy ({spec})")
    check_action_kind(config.spec, spaces, None, config.env_id)
    return TrainingData(spaces if spec is None else spec)


def _choice(option: bool | None, default: bool) -> bool:
    return default if option is None else option


def spec_from_data(dataset: TransitionDataset, options: DatasetConfig) -> ProblemSpec:
    """Derive the problem from the log, for lack of an environment."""
    if dataset.discrete:
        log.info("no environment: %d actions, as many as the data has", dataset.num_actions)
        return ProblemSpec(dataset.obs_dim, "discrete", int(dataset.num_actions or 0))
    width = dataset.action_width
    measured_low, measured_high = _action_range(dataset)
    low = _bound(options.action_low, measured_low, "action_low", width)
    high = _bound(options.action_high, measured_high, "action_high", width)
    if np.any(low > high):
        raise ConfigError([Problem(("algo_kwargs", "action_low"), "is above action_high")])
    origin = "action_low / action_high" if options.action_low is not None else "the data's range"
    log.info(
        "no environment: action bounds from %s: low %s, high %s", origin, _short(low), _short(high)
    )
    return ProblemSpec(
        dataset.obs_dim, "continuous", width, tuple(map(float, low)), tuple(map(float, high))
    )


def check_action_kind(
    algorithm: AlgorithmSpec,
    spec: ProblemSpec | None,
    dataset: TransitionDataset | None,
    env_id: str | None,
) -> None:
    """Refuse algorithm, environment and data that disagree on what an action is."""
    kind, whose = "", ""
    if dataset is not None:
        kind, whose = dataset.action_kind, f"the actions of {dataset.source}"
    if spec is not None:
        kind, whose = spec.action_kind, f"the actions of {env_id}"
    if kind not in algorithm.action_kinds:
        others = [s.name for s in list_algorithm_specs() if kind in s.action_kinds]
        hint = f"; algorithms for them: {', '.join(others)}" if others else ""
        supported = " or ".join(algorithm.action_kinds)
        raise EnvError(f"{algorithm.name} needs {supported} actions, but {whose} are {kind}{hint}")
    if dataset is not None and kind != dataset.action_kind:
        raise DatasetError(
            f"the actions of {dataset.source} are {dataset.action_kind}, but those of {env_id} "
            f"are {kind}"
        )


def _check_widths(dataset: TransitionDataset, spec: ProblemSpec, env_id: str | None) -> None:
    other = env_id or "the policy"
    for what, width, expected in (
        ("observations", dataset.obs_dim, spec.obs_dim),
        ("actions", dataset.action_width, spec.action_width),
    ):
        if width != expected:
            raise DatasetError(
                f"{dataset.source} has {what} of width {width}, but {other} has {expected}"
            )


def _check_bounds(dataset: TransitionDataset, spec: ProblemSpec, options: DatasetConfig) -> None:
    if spec.action_kind == "discrete":
        _check_choices(dataset, spec)
        return
    # as the actions are stored: a bound like 1000.01 is rounded, too
    low = np.array(spec.action_low, np.float32).astype(float)
    high = np.array(spec.action_high, np.float32).astype(float)
    if options.clip_actions:
        return
    slack = 1e-4 * (high - low) + 1e-6  # rounding of a log is not a wrong unit
    measured_low, measured_high = _action_range(dataset)
    if np.all(measured_low >= low - slack) and np.all(measured_high <= high + slack):
        if looks_normalised(measured_low, measured_high, low, high):
            log.warning(
                "the actions of %s fill [-1, 1], but the bounds are %s .. %s: if the log is "
                "normalised, rescale it with `rl-training data convert --scale-actions`",
                dataset.source, _short(low), _short(high),
            )  # fmt: skip
        return
    actions = dataset.actions.numpy()
    outside = np.any((actions < low - slack) | (actions > high + slack), axis=1)
    row = int(outside.argmax())
    raise DatasetError(
        f"{dataset.source}: actions of {int(outside.sum())} rows lie outside the bounds "
        f"{_short(low)} .. {_short(high)}, first row {row}: {_short(actions[row])}; "
        "set clip_actions: true to clip them, or rescale the log (rl-training data convert --scale-actions)"
    )


def _check_choices(dataset: TransitionDataset, spec: ProblemSpec) -> None:
    largest = int(dataset.actions.max())
    if largest >= spec.action_dim:
        row = int((dataset.actions >= spec.action_dim).nonzero()[0])
        raise DatasetError(
            f"{dataset.source}: action {largest} is not one of {spec.action_dim} choices, which "
            f"count from 0; first row {row}"
        )


def _action_range(dataset: TransitionDataset) -> tuple[Any, Any]:
    actions = dataset.actions
    return actions.amin(0).numpy().astype(float), actions.amax(0).numpy().astype(float)


def _bound(option: Any, measured: Any, key: str, width: int) -> Any:
    if option is None:
        return measured
    values = np.asarray(option, dtype=float)
    if values.ndim == 0:
        values = np.broadcast_to(values, (width,))
    if values.shape != (width,):
        message = f"has {len(values)} entries, but actions have {width}"
        raise ConfigError([Problem(("algo_kwargs", key), message)])
    return values


def _short(values: Any) -> str:
    shown = ", ".join(f"{value:.4g}" for value in values[:4])
    return f"[{shown}, ...]" if len(values) > 4 else f"[{shown}]"
