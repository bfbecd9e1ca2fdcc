"""Warnings about data that nothing, or the wrong thing, can be learned from."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from rl_training.data.checks.action_checks import as_bounds, check_constant_actions
from rl_training.data.checks.column_checks import check_observations, check_rewards
from rl_training.data.checks.scale_checks import uneven_columns
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.spec import ProblemSpec

_SAMPLE = 20_000  # rows of observations that are looked at


def training_warnings(
    dataset: TransitionDataset,
    raw: TransitionDataset,
    *,
    env_spec: ProblemSpec | None,
    learns_from_rewards: bool,
    normalized: bool,
) -> Iterator[str]:
    """Warn of columns that never vary, of odd rewards and of uneven scales.

    Args:
        dataset: Rows as they were logged.
        raw: These rows with the rewards that are learned from.
        env_spec: The problem, if an environment says what it is.
        learns_from_rewards: False of a method that ignores rewards.
        normalized: True if observations are normalised before they are learned from.
    """
    yield from _never_varying(dataset, env_spec)
    if learns_from_rewards:
        yield from _reward_warnings(dataset, raw)
    uneven = None if normalized else uneven_columns(_sampled_obs(dataset))
    if uneven is not None:
        advice = "networks see little but the large one: set normalize_observations: true"
        yield f"{uneven}; {advice}"


def _never_varying(dataset: TransitionDataset, env_spec: ProblemSpec | None) -> Iterator[str]:
    bounds = None
    if env_spec is not None and env_spec.action_kind == "continuous":
        bounds = as_bounds(env_spec.action_low, env_spec.action_high, env_spec.action_width)
    actions = dataset.actions.float().reshape(len(dataset), -1).numpy()
    findings = (
        *check_observations(_sampled_obs(dataset)),
        *check_constant_actions(actions, bounds),
    )
    yield from (f"{entry.message}: {entry.fix}" for entry in findings if entry.level == "warning")


def _sampled_obs(dataset: TransitionDataset) -> NDArray[np.float32]:
    """Gather observations of some rows: all of them may not fit into memory."""
    step = max(1, len(dataset) // _SAMPLE)
    return dataset.gather(torch.arange(0, len(dataset), step)).obs.numpy()


def _reward_warnings(dataset: TransitionDataset, raw: TransitionDataset) -> Iterator[str]:
    """Warn of rewards, as they are learned from, that are all the same or too large."""
    for entry in check_rewards(raw.rewards.numpy(), raw.terminations.numpy() > 0):
        if entry.level != "warning" or entry.name not in ("constant-reward", "reward-magnitude"):
            continue
        # numbers that the check advises are for rewards that no option changes yet
        changed = raw is not dataset and entry.name == "reward-magnitude"
        yield f"{entry.message}: {'change reward_scale' if changed else entry.fix}"
