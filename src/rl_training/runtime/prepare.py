"""Preparation of training data: check against the problem, scale and normalise."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rl_training.data.checks.training_checks import training_warnings
from rl_training.data.data_facts import DataFacts, measure_behaviour, measure_facts
from rl_training.data.dataset_config import DatasetConfig
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.transitions.normalizer import ObservationNormalizer
from rl_training.envs.spaces import check_fits, infer_env_spaces
from rl_training.runtime.config.choices import (
    normalizes_observations,
    normalizes_rewards,
)
from rl_training.runtime.config.train_config import TrainConfig
from rl_training.runtime.preparation.agreement import (
    check_action_kind,
    check_bounds,
    check_widths,
    read_as_choices,
    spec_from_data,
)
from rl_training.runtime.preparation.loading import (
    SavedPreparation,
    build_offline_dataset,
    load_and_split,
)
from rl_training.spec import ProblemSpec

__all__ = [
    "PreparedDataset",
    "SavedPreparation",
    "TrainingData",
    "build_offline_dataset",
    "check_actions",
    "check_environment",
    "load_and_split",
    "prepare",
    "prepare_online",
]
log = logging.getLogger("rl_training")


@dataclass(frozen=True)
class PreparedDataset:
    """Dataset before and after scaling and normalisation."""

    raw: TransitionDataset  # environment units, rewards transformed
    learning: TransitionDataset  # actions in [-1, 1], observations normalised
    held_out: TransitionDataset | None = None  # like `learning`, but for validation only


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
        identity = {"source": raw.source, "sha256": raw.sha256, "shaped": self.shaped_log}
        held_out = self.dataset.held_out
        if held_out is not None:
            episodes = len(held_out.episode_starts)
            identity["validation"] = {"episodes": episodes, "sha256": held_out.sha256}
        return identity


def prepare(
    config: TrainConfig,
    dataset: TransitionDataset,
    held_out: TransitionDataset | None = None,
    *,
    saved: SavedPreparation | None = None,
) -> TrainingData:
    """Check data, problem and algorithm against each other; scale and normalise.

    Held-out rows get the same scaling, and have no part in any statistic.
    """
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
    if held_out is not None:
        held_out = _checked_held_out(config, held_out, spec)

    algorithm, behaviour = config.spec.algorithm, measure_behaviour(dataset)
    if algorithm.needs_next_actions(config.groups.algorithm):
        dataset = dataset.with_valid_next_actions()
    shaped = _with_wrapper_rewards(config, dataset, saved)
    if saved is not None:
        reward_scale, normalizer = saved.reward_scale, saved.normalizer
    else:
        reward_scale, normalizer = _measured(config, shaped)
    raw = _with_rewards(options, shaped, reward_scale)
    learning = _scaled(options, raw, spec, normalizer)
    if algorithm.needs_returns(config.groups.algorithm):
        gamma = getattr(config.groups.algorithm, "gamma", 1.0)
        bounds = algorithm.returns_are_lower_bounds
        learning = learning.with_returns(gamma, lower_bounds=bounds)
    if held_out is not None:
        held_out = _with_wrapper_rewards(config, held_out, saved)
        held_out = _with_rewards(options, held_out, reward_scale)
        held_out = _scaled(options, held_out, spec, normalizer)
    return TrainingData(
        spec,
        PreparedDataset(raw, learning, held_out),
        normalizer,
        reward_scale,
        shaped_log=saved is None or saved.shaped_log,
        facts=measure_facts(learning, spec, behaviour),
        warnings=tuple(_warnings(config, dataset, raw, spec, normalized=normalizer is not None)),
    )


def _warnings(
    config: TrainConfig,
    dataset: TransitionDataset,
    raw: TransitionDataset,
    spec: ProblemSpec,
    *,
    normalized: bool,
) -> Iterator[str]:
    for text in training_warnings(
        dataset,
        raw,
        env_spec=None if config.env_id is None else spec,
        learns_from_rewards=hasattr(config.groups.algorithm, "gamma"),
        normalized=normalized,
    ):
        log.warning("%s: %s", dataset.source, text)
        yield f"{dataset.source}: {text}"


def _checked_held_out(
    config: TrainConfig, held_out: TransitionDataset, spec: ProblemSpec
) -> TransitionDataset:
    held_out = read_as_choices(held_out, spec)
    check_action_kind(config, spec, held_out)
    options = config.groups.dataset
    # bounds that are the range of the training rows need not hold here
    if config.env_id is not None or options.action_low is not None:
        check_bounds(held_out, spec, options)
    return held_out


def _scaled(
    options: DatasetConfig,
    dataset: TransitionDataset,
    spec: ProblemSpec,
    normalizer: ObservationNormalizer | None,
) -> TransitionDataset:
    """Bring actions into [-1, 1] and normalise observations."""
    if spec.action_kind == "continuous":
        dataset = dataset.with_action_scaling(spec.action_low, spec.action_high)
    if options.clip_actions:
        dataset = dataset.with_action_clipping()
    if normalizer is not None:
        dataset = dataset.with_observation_normalization(normalizer.mean, normalizer.std)
    return dataset


def _with_wrapper_rewards(
    config: TrainConfig, dataset: TransitionDataset, saved: SavedPreparation | None
) -> TransitionDataset:
    if saved is not None and not saved.shaped_log:
        return dataset
    return dataset.with_wrapper_rewards(**config.groups.env.training.reward.model_dump())


def _measured(
    config: TrainConfig, dataset: TransitionDataset
) -> tuple[float, ObservationNormalizer | None]:
    """Return the factor of the return-range normalisation, 1 without it, and the normaliser."""
    options, reward_scale, normalizer = config.groups.dataset, 1.0, None
    if normalizes_rewards(config.spec, options):
        reward_scale = dataset.return_range_scale()
    if normalizes_observations(config.spec, options):
        normalizer = ObservationNormalizer(*dataset.observation_statistics())
    return reward_scale, normalizer


def _with_rewards(
    options: DatasetConfig, dataset: TransitionDataset, reward_scale: float
) -> TransitionDataset:
    """Return the data with the rewards that are learned from."""
    return dataset.with_reward_transform(scale=reward_scale).with_reward_transform(
        scale=options.reward_scale,
        shift=options.reward_shift,
        clip_min=options.reward_clip_min,
        clip_max=options.reward_clip_max,
    )


def prepare_online(config: TrainConfig, spec: ProblemSpec | None = None) -> TrainingData:
    """Read the problem from its environment, for a learner that collects all of its data."""
    if spec is not None:
        check_environment(config, spec)
        return TrainingData(spec)
    assert config.env_id is not None
    spec = infer_env_spaces(config.env_id, config.groups.env)
    check_action_kind(config, spec, None)
    return TrainingData(spec)


def check_actions(config: TrainConfig) -> None:
    """Refuse an environment that is not there or whose actions the algorithm does not take."""
    if config.env_id is not None:
        check_action_kind(config, infer_env_spaces(config.env_id, config.groups.env), None)


def check_environment(config: TrainConfig, policy: ProblemSpec) -> None:
    """Refuse an environment to collect in that does not fit a trained policy."""
    assert config.env_id is not None
    problem = infer_env_spaces(config.env_id, config.groups.env)
    check_fits(config.env_id, problem, policy, bounds=True)
