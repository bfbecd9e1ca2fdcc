"""Choices that options leave to the algorithm, and what it chooses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rl_training.algorithms.base import AlgorithmConfig
from rl_training.algorithms.registry import AlgorithmSpec, Regime
from rl_training.config import Options
from rl_training.data.dataset_config import DatasetConfig, DatasetMixPart
from rl_training.data.formats import get_format
from rl_training.data.formats.random import RANDOM_ROWS
from rl_training.runtime.config.train_config import TrainConfig, group_classes
from rl_training.runtime.seeding import stream_seed


def normalizes_observations(spec: AlgorithmSpec, options: DatasetConfig) -> bool:
    chosen = options.normalize_observations
    return spec.algorithm.normalizes_observations if chosen is None else chosen


def normalizes_rewards(spec: AlgorithmSpec, options: DatasetConfig) -> bool:
    chosen = options.normalize_rewards
    return spec.algorithm.normalizes_rewards if chosen is None else chosen


def default_schedules(spec: AlgorithmSpec, regime: Regime) -> dict[str, str]:
    """Return the algorithm's learning-rate schedules by network; they are for offline training."""
    return dict(spec.algorithm.schedules) if regime == "offline" else {}


def dataset_seed(seed: int) -> int:
    """Derive the seed of a dataset of kind random from that of the run."""
    return stream_seed(seed, "dataset") % 2**31


def chosen_options(config: TrainConfig) -> dict[str, Any]:
    """Return all options that the regime uses, with the algorithm's choices; None means off."""
    groups = config.groups._asdict()
    offline = config.regime == "offline"
    used = {
        title: groups[title]
        for title in group_classes(config.spec)
        if not (offline and title in ("replay", "offline_to_online"))
    }
    return _resolved(config.spec, used, config.regime, config.seed)


def default_options(spec: AlgorithmSpec) -> dict[str, Any]:
    """Return all options of an algorithm as they are if nothing is set."""
    groups = {title: group() for title, group in group_classes(spec).items()}
    return _resolved(spec, groups, spec.regimes[0], seed=None)


def _resolved(
    spec: AlgorithmSpec, groups: Mapping[str, Options], regime: Regime, seed: int | None
) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for group in groups.values():
        if isinstance(group, AlgorithmConfig):
            options |= group.chosen()
        else:
            options |= group.model_dump(mode="json")
    options["regime"] = regime
    if options["learning_rate_schedule"] is None:
        options["learning_rate_schedule"] = default_schedules(spec, regime) or "constant"
    dataset = groups.get("dataset")
    if isinstance(dataset, DatasetConfig):
        options["normalize_observations"] = normalizes_observations(spec, dataset)
        options["normalize_rewards"] = normalizes_rewards(spec, dataset)
        options |= _random_rows(dataset, seed)
        if dataset.dataset_mix is not None:
            options["dataset_mix"] = [_part(part, seed) for part in dataset.dataset_mix]
    return {name: _without_none(value) for name, value in options.items()}


def _part(part: DatasetMixPart, seed: int | None) -> dict[str, Any]:
    return {**part.model_dump(mode="json"), **_random_rows(part, seed)}


def _random_rows(choice: DatasetConfig | DatasetMixPart, seed: int | None) -> dict[str, int]:
    """Return size and seed of a dataset that is collected; nothing for other kinds."""
    if choice.dataset_kind is None or seed is None:
        return {}
    if "dataset_seed" not in get_format(choice.dataset_kind).keys:
        return {}
    return {
        "dataset_size": RANDOM_ROWS if choice.dataset_size is None else choice.dataset_size,
        "dataset_seed": dataset_seed(seed) if choice.dataset_seed is None else choice.dataset_seed,
    }


def _without_none(value: Any) -> Any:
    """Leave out entries that are not set, inside an option."""
    if isinstance(value, dict):
        return {key: _without_none(entry) for key, entry in value.items() if entry is not None}
    if isinstance(value, list):
        return [_without_none(entry) for entry in value]
    return value
