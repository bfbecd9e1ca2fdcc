"""Collecting a dataset: transitions of a policy in an environment that the caller made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rl_training.data.builtin.rows import Rows, env_name, policy_rows, random_rows
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.envs.rollout import Act

LogProbs = Callable[[Rows], NDArray[Any] | None]


def collect(
    env: gym.Env[Any, Any], act: Act, size: int, seed: int, log_probs: LogProbs | None = None
) -> TransitionDataset:
    """`size` transitions of the policy `act` (observation in, environment action out).

    `log_probs` gives the log-probabilities of collected actions, in units of the environment, or None if they are not
    known exactly.
    """
    rows = policy_rows(env, act, size, seed)
    return _dataset(env, rows, None if log_probs is None else log_probs(rows))


def collect_random(env: gym.Env[Any, Any], size: int, seed: int) -> TransitionDataset:
    """`size` transitions of a uniformly random policy."""
    rows = random_rows(env, size, seed)
    log_prob = _uniform_log_prob(env.action_space)
    return _dataset(env, rows, None if log_prob is None else np.full(size, log_prob))


def _uniform_log_prob(space: Any) -> float | None:
    """Log-probability of any action that a space draws; None if it does not draw uniformly."""
    if isinstance(space, spaces.Discrete):
        return -float(np.log(space.n))
    width = space.high.astype(np.float64) - space.low
    if space.dtype.kind != "f" or not (np.isfinite(width) & (width > 0)).all():
        return None
    return -float(np.log(width).sum())


def _dataset(
    env: gym.Env[Any, Any], rows: Rows, log_probs: NDArray[Any] | None
) -> TransitionDataset:
    fields = {**rows, "behavior_log_probs": log_probs}  # None is no field
    return TransitionDataset.from_dict(fields, env_name(env)).with_next_actions()
