"""Collecting a dataset: transitions of a policy in an environment that the caller made."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from rl_training.data.builtin.rows import Rows, env_name, policy_rows, random_rows
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.envs.rollout import Act


def collect(env: gym.Env[Any, Any], act: Act, size: int, seed: int) -> TransitionDataset:
    """`size` transitions of the policy `act` (observation in, environment action out)."""
    return _dataset(env, policy_rows(env, act, size, seed))


def collect_random(env: gym.Env[Any, Any], size: int, seed: int) -> TransitionDataset:
    """`size` transitions of a uniformly random policy."""
    return _dataset(env, random_rows(env, size, seed))


def _dataset(env: gym.Env[Any, Any], rows: Rows) -> TransitionDataset:
    return TransitionDataset.from_dict(rows, env_name(env)).with_next_actions()
