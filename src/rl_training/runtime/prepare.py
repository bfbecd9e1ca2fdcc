"""Preparation of training data: load, check against the problem, scale and normalise."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym

from rl_training.config import ConfigError, Problem
from rl_training.data.checks.action_checks import as_bounds, check_constant_actions
from rl_training.data.checks.column_checks import Finding, check_observations, check_rewards
from rl_training.data.checks.scale_checks import uneven_columns
from rl_training.data.data_facts import DataFacts, measure_behaviour, measure_facts
from rl_training.data.dataset_config import PLACEHOLDER, DatasetChoice
from rl_training.data.dataset_loaders import load_transition_dataset
from rl_training.data.formats import get_format, list_formats
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.offline_mixers import mix_transition_datasets
from rl_training.data.transitions.normalizer import ObservationNormalizer
from rl_training.envs.errors import closing, naming_the_env
from rl_training.envs.factory import make_env, make_raw_env
from rl_training.envs.goals import without_goals
from rl_training.envs.spaces import check_fits, infer_env_spaces
from rl_training.runtime.agreement import (
    check_action_kind,
    check_bounds,
    check_widths,
    point_to_check,
    read_as_choices,
    spec_from_data,
)
from rl_training.runtime.config.choices import (
    dataset_seed,
    normalizes_observations,
    normalizes_rewards,
)
from rl_training.runtime.config.train_config import TrainConfig
from rl_training.spec import ProblemSpec

log = logging.getLogger("rl_training")

_SAMPLE = 20_000  # rows of observations that are looked at


@dataclass(frozen=True)
class PreparedDataset:
    """Dataset before and after scaling and normalisation."""

    raw: TransitionDataset  # environment units, rewards transformed
    learning: TransitionDataset  # actions in [-1, 1], observations normalised


@dataclass(frozen=True)
class SavedPreparation:
    """Preparation of the data of a checkpoint, taken over instead of measured anew."""

    spec: ProblemSpec
    normalizer: ObservationNormalizer | None
    reward_scale: float
    shaped_log: bool  # false of a version whose reward wrappers left logs alone


@dataclass(frozen=True)
class TrainingData:
    """Problem, data, and the statistics that must travel with the policy."""

    spec: ProblemSpec
    dataset: PreparedDataset | None = None  # none for a learner that collects all of its data
    normalizer: ObservationNormalizer | None = None
    reward_scale: float = 1.0  # of the return-range normalisation; 1 without it
    shaped_log: bool = True  # logged rewards pass through the environment's reward wrappers
    facts: DataFacts | None = None  # none without a dataset
    warnings: tuple[str, ...] = ()  # of what may go wrong in training

    @property
    def source(self) -> dict[str, Any]:
        """Identify the dataset, for a checkpoint."""
        if self.dataset is None:
            return {}
        raw = self.dataset.raw
        return {"source": raw.source, "sha256": raw.sha256, "shaped": self.shaped_log}


def build_offline_dataset(
    config: TrainConfig,
    dataset: TransitionDataset | None = None,
    *,
    saved: SavedPreparation | None = None,
) -> TransitionDataset:
    """Load the configured dataset, or take the caller's, and apply `top_fraction`."""
    options = config.groups.dataset
    if dataset is not None:
        point_to_check(dataset, None)
    elif options.dataset_mix is not None:
        parts = [_load(config, part, saved) for part in options.dataset_mix]
        weights = [part.weight for part in options.dataset_mix]
        dataset = mix_transition_datasets(parts, weights)
    else:
        dataset = _load(config, options, saved)
    for note in dataset.notes:
        log.info("%s: %s", dataset.source, note)
    if options.top_fraction is not None:
        before = len(dataset.episode_returns)
        dataset = dataset.top_episodes(options.top_fraction)
        log.info("top_fraction: kept %d of %d episodes", len(dataset.episode_returns), before)
    return dataset


def _load(
    config: TrainConfig, choice: DatasetChoice, saved: SavedPreparation | None
) -> TransitionDataset:
    if choice.dataset_kind is None:
        path = ("algo_kwargs", "dataset_kind")
        names = ", ".join(entry.name for entry in list_formats())
        message = f"is required ({names}), or pass dataset= to learn"
        raise ConfigError([Problem(path, message)])
    file = choice.dataset_path
    if file is not None and Path(file).name == PLACEHOLDER and not Path(file).exists():
        message = "is to be given: the file of the log, such as dataset_path=LOG.npz"
        raise ConfigError([Problem(("algo_kwargs", "dataset_path"), message)])
    options = choice.chosen_keys()
    dataset_format = get_format(choice.dataset_kind)
    if "dataset_seed" in dataset_format.keys:
        options.setdefault("dataset_seed", dataset_seed(config.seed))
    in_memory = config.groups.dataset.dataset_in_memory
    if not in_memory and "dataset_in_memory" in dataset_format.keys:
        options["dataset_in_memory"] = False  # of a mixture, all parts
    if not dataset_format.needs_env:
        dataset = load_transition_dataset(dataset_format.name, **options)
        point_to_check(dataset, choice.location)
        return dataset
    assert config.env_id is not None
    env = _rollout_env(config.env_id, config, saved)
    with closing(env, config.env_id), naming_the_env(config.env_id):
        return load_transition_dataset(dataset_format.name, env=env, **options)


def _rollout_env(
    env_id: str, config: TrainConfig, saved: SavedPreparation | None
) -> gym.Env[Any, Any]:
    """Make the environment of a dataset that is rolled out now, with raw rewards: `prepare` shapes them.

    For a checkpoint it gives what the policy was trained on.
    """
    make = make_raw_env if saved is None or saved.shaped_log else make_env
    achieved = saved is None or saved.spec.sees_achieved_goal
    return without_goals(make(env_id, config.groups.env), achieved=achieved)


def prepare(
    config: TrainConfig, dataset: TransitionDataset, *, saved: SavedPreparation | None = None
) -> TrainingData:
    """Check data, problem and algorithm against each other; scale and normalise."""
    options = config.groups.dataset
    spec = None if saved is None else saved.spec
    if spec is None and config.env_id is not None:
        spec = infer_env_spaces(config.env_id, config.groups.env)
    dataset = read_as_choices(dataset, spec)
    check_action_kind(config, spec, dataset)
    if spec is None:
        spec = spec_from_data(dataset, options)
    check_widths(dataset, spec, config.env_id)
    check_bounds(dataset, spec, options)

    algorithm, behaviour = config.spec.algorithm, measure_behaviour(dataset)
    if algorithm.needs_next_actions(config.groups.algorithm):
        dataset = dataset.with_valid_next_actions()
    raw, reward_scale = _with_rewards(config, dataset, saved)
    learning = raw
    if spec.action_kind == "continuous":
        learning = raw.with_action_scaling(spec.action_low, spec.action_high)
    if options.clip_actions:
        learning = learning.with_action_clipping()
    normalizer = None if saved is None else saved.normalizer
    if saved is None and normalizes_observations(config.spec, options):
        normalizer = ObservationNormalizer(*dataset.observation_statistics())
    if normalizer is not None:
        learning = learning.with_observation_normalization(normalizer.mean, normalizer.std)
    if algorithm.needs_returns(config.groups.algorithm):
        gamma = getattr(config.groups.algorithm, "gamma", 1.0)
        bounds = algorithm.returns_are_lower_bounds
        learning = learning.with_returns(gamma, lower_bounds=bounds)
    return TrainingData(
        spec,
        PreparedDataset(raw, learning),
        normalizer,
        reward_scale,
        shaped_log=saved is None or saved.shaped_log,
        facts=measure_facts(learning, spec, behaviour),
        warnings=tuple(
            _data_warnings(config, dataset, raw, spec, normalized=normalizer is not None)
        ),
    )


def _data_warnings(
    config: TrainConfig,
    dataset: TransitionDataset,
    raw: TransitionDataset,
    spec: ProblemSpec,
    *,
    normalized: bool,
) -> Iterator[str]:
    """Warn of data that nothing, or the wrong thing, can be learned from."""
    texts = [f"{entry.message}: {entry.fix}" for entry in _never_varying(config, dataset, spec)]
    texts += _reward_warnings(config, dataset, raw)
    uneven = None if normalized else uneven_columns(dataset.obs.numpy())
    if uneven is not None:
        advice = "networks see little but the large one: set normalize_observations: true"
        texts.append(f"{uneven}; {advice}")
    for text in texts:
        log.warning("%s: %s", dataset.source, text)
        yield f"{dataset.source}: {text}"


def _never_varying(
    config: TrainConfig, dataset: TransitionDataset, spec: ProblemSpec
) -> Iterator[Finding]:
    bounds = None
    if config.env_id is not None and spec.action_kind == "continuous":
        bounds = as_bounds(spec.action_low, spec.action_high, spec.action_width)
    step = max(1, len(dataset) // _SAMPLE)
    actions = dataset.actions.float().reshape(len(dataset), -1).numpy()
    findings = (
        *check_observations(dataset.obs[::step].numpy()),
        *check_constant_actions(actions, bounds),
    )
    yield from (entry for entry in findings if entry.level == "warning")


def _reward_warnings(
    config: TrainConfig, dataset: TransitionDataset, raw: TransitionDataset
) -> Iterator[str]:
    """Warn of rewards, as they are learned from, that are all the same or too large."""
    if not hasattr(config.groups.algorithm, "gamma"):  # rewards are not learned from
        return
    for entry in check_rewards(raw.rewards.numpy(), raw.terminations.numpy() > 0):
        if entry.level != "warning" or entry.name not in ("constant-reward", "reward-magnitude"):
            continue
        # numbers that the check advises are for rewards that no option changes yet
        changed = raw is not dataset and entry.name == "reward-magnitude"
        yield f"{entry.message}: {'change reward_scale' if changed else entry.fix}"


def _with_rewards(
    config: TrainConfig, dataset: TransitionDataset, saved: SavedPreparation | None
) -> tuple[TransitionDataset, float]:
    """Return the data with the rewards that are learned from, and the factor of their returns."""
    options = config.groups.dataset
    if saved is None or saved.shaped_log:
        dataset = dataset.with_wrapper_rewards(**config.groups.env.training.reward.model_dump())
    if saved is not None:
        reward_scale = saved.reward_scale
    elif normalizes_rewards(config.spec, options):
        reward_scale = dataset.return_range_scale()
    else:
        reward_scale = 1.0
    transformed = dataset.with_reward_transform(scale=reward_scale).with_reward_transform(
        scale=options.reward_scale,
        shift=options.reward_shift,
        clip_min=options.reward_clip_min,
        clip_max=options.reward_clip_max,
    )
    return transformed, reward_scale


def prepare_online(config: TrainConfig, spec: ProblemSpec | None = None) -> TrainingData:
    """Read the problem from its environment, for a learner that collects all of its data."""
    if spec is not None:
        check_environment(config, spec)
        return TrainingData(spec)
    assert config.env_id is not None
    spec = infer_env_spaces(config.env_id, config.groups.env)
    check_action_kind(config, spec, None)
    return TrainingData(spec)


def check_environment(config: TrainConfig, policy: ProblemSpec) -> None:
    """Refuse an environment to collect in that does not fit a trained policy."""
    assert config.env_id is not None
    problem = infer_env_spaces(config.env_id, config.groups.env)
    check_fits(config.env_id, problem, policy, bounds=True)
