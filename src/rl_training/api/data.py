"""Functions on datasets: describe, check, convert, collect; and observations for a policy.

A location is a file (`log.npz`), `builtin:NAME` or `minari:NAME`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.config import ConfigError, DatasetError
from rl_training.data.checks.dataset_checks import Finding
from rl_training.data.formats import file_endings
from rl_training.data.locations import (
    check_location,
    load_location,
    read_observations,
)
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.rewriting import read_choices, renumber_actions, repair_dataset
from rl_training.envs.spaces import infer_env_spaces
from rl_training.files import parse_json, refuse_irregular, written_aside
from rl_training.runs.layout import check_output_dir
from rl_training.runtime import collect

__all__ = [
    "action_bounds",
    "check_dataset",
    "collect_dataset",
    "convert_dataset",
    "describe_dataset",
    "export_replay",
    "parse_observations",
    "read_observations",
    "save_actions",
]


def describe_dataset(location: str) -> dict[str, Any]:
    """Sizes, episodes, returns and ranges."""
    return load_location(location).describe()


def check_dataset(location: str, *, env_id: str | None = None) -> list[Finding]:
    """Find what makes offline training fail silently; with `env_id` also compare the spaces."""
    return check_location(location, spec=None if env_id is None else infer_env_spaces(env_id))


def convert_dataset(
    source: str,
    target: Path,
    *,
    repair: bool = False,
    discrete_actions: bool = False,
    first_action: int | None = None,
    with_next_actions: bool = False,
    scale_actions: float | None = None,
    clip_actions: tuple[Any, Any] | None = None,
    top_fraction: float | None = None,
    reward_scale: float = 1.0,
    reward_shift: float = 0.0,
    overwrite: bool = False,
) -> int:
    """Write a dataset in another format, or changed; returns its number of transitions.

    Args:
        source: A location.
        target: A new file; its suffix names the format.
        repair: Drop last rows of episodes that have lost their next observation.
        discrete_actions: Read floats as discrete actions: whole numbers, or one-hot rows.
        first_action: Number of the first choice in the source; actions then count from 0.
        with_next_actions: Store the action of the next row.
        scale_actions: Multiply actions by this.
        clip_actions: Lower and upper bound of actions, applied after scaling.
        top_fraction: Keep this share of the episodes, those with the highest return.
        reward_scale: Multiply rewards by this.
        reward_shift: Add this to rewards after scaling.
        overwrite: Replace a target that exists.
    """
    _check_target(target, overwrite)
    if np.float32(reward_scale) == 0:  # also of a number too small for float32
        raise ConfigError("--reward-scale must not be 0: every reward would be lost")
    dataset = load_location(source)
    if discrete_actions:
        dataset = read_choices(dataset)
    if first_action is not None:
        dataset = renumber_actions(dataset, first_action)
    if with_next_actions:
        dataset = dataset.with_next_actions()  # also of rows that the repair drops
    if repair:
        dataset = repair_dataset(dataset)
    if top_fraction is not None:
        dataset = dataset.top_episodes(top_fraction)
    dataset = dataset.with_reward_transform(scale=reward_scale, shift=reward_shift)
    if scale_actions is not None:
        dataset = dataset.with_action_scaling(-1 / scale_actions, 1 / scale_actions)
    if clip_actions is not None:
        dataset = dataset.with_action_clipping(*clip_actions)
    return _save(dataset, target)


def action_bounds(env_id: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Lower and upper bound of each action of an environment."""
    spec = infer_env_spaces(env_id)
    if spec.action_kind == "discrete":
        raise ConfigError(f"{env_id} has discrete actions, so there are no bounds to clip to")
    return spec.action_low, spec.action_high


def collect_dataset(
    target: Path,
    *,
    env_id: str | None = None,
    checkpoint: str | Path | None = None,
    steps: int = 10_000,
    noise: float = 0.0,
    deterministic: bool = True,
    seed: int = 0,
    overwrite: bool = False,
    trust_env: bool = False,
) -> int:
    """Roll out a checkpoint's policy, or a uniformly random one; returns the number of transitions.

    `noise` is the standard deviation of Gaussian noise, as a share of half the action range.
    `trust_env` allows the checkpoint to name an environment `module:Name`.
    """
    _check_target(target, overwrite)
    dataset = collect.collect_dataset(
        env_id=env_id,
        checkpoint=checkpoint,
        steps=steps,
        noise=noise,
        deterministic=deterministic,
        seed=seed,
        trust_env=trust_env,
    )
    return _save(dataset, target)


def export_replay(run: str | Path, target: Path, *, overwrite: bool = False) -> int:
    """Write the replay buffer of an online run as a dataset; returns its number of transitions."""
    _check_target(target, overwrite)
    return _save(collect.replay_dataset(run), target)


def parse_observations(text: str) -> NDArray[np.float32] | dict[str, NDArray[np.float32]]:
    """One observation or a list of them in JSON; also the mapping of a goal environment."""
    try:
        values = parse_json(text)
        if isinstance(values, dict):
            return {key: np.asarray(part, dtype=np.float32) for key, part in values.items()}
        return np.asarray(values, dtype=np.float32)
    except (ValueError, TypeError, OverflowError):
        shown = text if len(text) <= 80 else f"{text[:80]}..."
        raise ConfigError(
            f"--obs {shown!r}: write a list of numbers, such as '[1, 0, 0]'"
        ) from None


def save_actions(path: Path, actions: NDArray[Any]) -> None:
    """Write actions to an `.npz`, atomically."""
    with written_aside(path) as aside, aside.open("wb") as file:  # savez would add a suffix
        np.savez(file, actions=actions)


def _check_target(path: Path, overwrite: bool) -> None:
    """Refuse a target before any work is done."""
    endings = file_endings(writable=True)
    if path.suffix.lower() not in endings:
        raise DatasetError(f"{path}: write to a file that ends in {', '.join(endings)}")
    refuse_irregular(path)
    if path.exists() and not overwrite:
        raise DatasetError(f"{path} exists; pass --overwrite to replace it")
    check_output_dir(path.parent)


def _save(dataset: TransitionDataset, target: Path) -> int:
    dataset.save(target)
    return len(dataset)
