"""Loading of the configured dataset, and the choice of episodes to learn from and to hold out."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym

from rl_training.config import ConfigError, Problem
from rl_training.data.dataset_config import PLACEHOLDER, DatasetChoice
from rl_training.data.dataset_loaders import load_transition_dataset, shares_memory
from rl_training.data.formats import get_format, list_formats
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.offline_mixers import mix_transition_datasets
from rl_training.data.transitions.normalizer import ObservationNormalizer
from rl_training.envs.errors import closing, naming_the_env
from rl_training.envs.factory import make_env, make_raw_env
from rl_training.envs.goals import without_goals
from rl_training.runtime.config.choices import dataset_seed
from rl_training.runtime.config.train_config import TrainConfig
from rl_training.runtime.preparation.agreement import point_to_check
from rl_training.runtime.seeding import stream_seed
from rl_training.spec import ProblemSpec

log = logging.getLogger("rl_training")


@dataclass(frozen=True)
class SavedPreparation:
    """Preparation of the data of a checkpoint, taken over instead of measured anew."""

    spec: ProblemSpec
    normalizer: ObservationNormalizer | None
    reward_scale: float
    shaped_log: bool  # false of a version whose reward wrappers left logs alone


def build_offline_dataset(
    config: TrainConfig,
    dataset: TransitionDataset | None = None,
    *,
    saved: SavedPreparation | None = None,
) -> TransitionDataset:
    """Load the configured dataset, or take the caller's, and keep the rows that are learned from."""
    return load_and_split(config, dataset, saved=saved)[0]


def load_and_split(
    config: TrainConfig,
    dataset: TransitionDataset | None = None,
    *,
    saved: SavedPreparation | None = None,
) -> tuple[TransitionDataset, TransitionDataset | None]:
    """Load the configured dataset, or take the caller's; return rows to learn from and held-out ones.

    `top_fraction` is for the rows to learn from: policies are judged on episodes of all kinds.
    """
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
    held_out = None
    if options.validation_fraction is not None:
        seed = stream_seed(config.seed, "validation")
        held_out, dataset = _hold_out(dataset, options.validation_fraction, seed)
    if options.top_fraction is not None:
        before = len(dataset.episode_returns)
        dataset = dataset.top_episodes(options.top_fraction)
        log.info("top_fraction: kept %d of %d episodes", len(dataset.episode_returns), before)
    return dataset, held_out


def _hold_out(
    dataset: TransitionDataset, fraction: float, seed: int
) -> tuple[TransitionDataset, TransitionDataset]:
    """Split whole episodes off, for validation; return them and the rest."""
    path = ("algo_kwargs", "validation_fraction")
    if dataset.boundaries == "unknown":
        message = (
            f"holds out whole episodes, but {dataset.source} does not say where they end: supply "
            "'truncations' or 'episode_ids', with the rows in order"
        )
        raise ConfigError([Problem(path, message)])
    episodes = len(dataset.episode_starts)
    if episodes < 2:
        message = f"needs at least two episodes, but {dataset.source} has {episodes}"
        raise ConfigError([Problem(path, message)])
    held_out, training = dataset.split(fraction, seed)
    if len(training.batch_shares()[0]) < len(dataset.batch_shares()[0]):
        message = (
            "would hold out all episodes of a part of dataset_mix: set it lower, or leave it out"
        )
        raise ConfigError([Problem(path, message)])
    log.info(
        "validation_fraction: %d of %d episodes are held out (%d of %d rows)",
        len(held_out.episode_starts), episodes, len(held_out), len(dataset),
    )  # fmt: skip
    return held_out, training


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
    if _is_mapped(config) and "dataset_in_memory" in dataset_format.keys:
        options["dataset_in_memory"] = False  # of a mixture, all parts
    if not dataset_format.needs_env:
        dataset = load_transition_dataset(dataset_format.name, **options)
        point_to_check(dataset, choice.location)
        return dataset
    assert config.env_id is not None
    env = _rollout_env(config.env_id, config, saved)
    with closing(env, config.env_id), naming_the_env(config.env_id):
        return load_transition_dataset(dataset_format.name, env=env, **options)


def _is_mapped(config: TrainConfig) -> bool:
    """Decide whether files are mapped: if the option says so, or is left to processes that share memory."""
    options = config.groups.dataset
    if "dataset_in_memory" in options.model_fields_set:
        return not options.dataset_in_memory
    return shares_memory()


def _rollout_env(
    env_id: str, config: TrainConfig, saved: SavedPreparation | None
) -> gym.Env[Any, Any]:
    """Make the environment of a dataset that is rolled out now, with raw rewards: `prepare` shapes them.

    For a checkpoint it gives what the policy was trained on.
    """
    make = make_raw_env if saved is None or saved.shaped_log else make_env
    achieved = saved is None or saved.spec.sees_achieved_goal
    return without_goals(make(env_id, config.groups.env), achieved=achieved)
