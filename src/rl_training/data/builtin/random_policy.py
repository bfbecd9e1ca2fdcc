"""Transitions rolled out in an environment that the caller built."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rl_training.config import DatasetError, EnvError
from rl_training.data.offline_dataset import TransitionDataset

Rows = dict[str, NDArray[Any]]


def collect_random(env: gym.Env[Any, Any], size: int, seed: int) -> TransitionDataset:
    """`size` transitions of a uniformly random policy."""
    env.action_space.seed(seed)
    return collect(env, lambda _obs: env.action_space.sample(), size, seed)


def collect(
    env: gym.Env[Any, Any], act: Callable[[NDArray[Any]], Any], size: int, seed: int
) -> TransitionDataset:
    """`size` transitions of the policy `act` (observation in, environment action out)."""
    rows = roll_out(env, act, size, seed)
    source = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
    return TransitionDataset.from_dict(rows, source).with_next_actions()


def roll_out(
    env: gym.Env[Any, Any], act: Callable[[NDArray[Any]], Any], size: int, seed: int
) -> Rows:
    """The fields of `collect`; the last episode is cut at `size` and marked truncated."""
    rows = _allocate(env, size)
    # Datasets number choices from 0, wherever the environment starts.
    first_choice = getattr(env.action_space, "start", 0)
    obs, _ = env.reset(seed=seed)
    for row in range(size):
        action = act(obs)
        next_obs, reward, terminated, truncated, _ = env.step(action)
        rows["obs"][row] = obs
        rows["actions"][row] = action - first_choice
        rows["rewards"][row] = reward
        rows["next_obs"][row] = next_obs
        rows["terminations"][row] = terminated
        rows["truncations"][row] = truncated
        obs = env.reset()[0] if terminated or truncated else next_obs
    rows["truncations"][-1] |= not rows["terminations"][-1]
    return rows


def _allocate(env: gym.Env[Any, Any], size: int) -> Rows:
    if size < 1:
        raise DatasetError(f"a dataset needs at least 1 transition, got size {size}")
    observations, actions = env.observation_space, env.action_space
    if not isinstance(observations, spaces.Box) or len(observations.shape) != 1:
        raise EnvError(f"data can be collected from flat observations only, not {observations}")
    if isinstance(actions, spaces.Discrete):
        action_rows: NDArray[Any] = np.empty(size, np.int64)
    elif isinstance(actions, spaces.Box) and len(actions.shape) == 1:
        action_rows = np.empty((size, *actions.shape), np.float32)
    else:
        raise EnvError(f"data can be collected with Discrete or flat Box actions, not {actions}")
    return {
        "obs": np.empty((size, *observations.shape), np.float32),
        "actions": action_rows,
        "rewards": np.empty(size, np.float32),
        "next_obs": np.empty((size, *observations.shape), np.float32),
        "terminations": np.zeros(size, np.bool_),
        "truncations": np.zeros(size, np.bool_),
    }
