"""Rows of a dataset from played transitions: arrays by field, before they are packed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rl_training.config import DatasetError, EnvError
from rl_training.envs.rollout import Act, Transition, roll_out

Rows = dict[str, NDArray[Any]]

_PIECE = 4096  # transitions held as Python objects before they become arrays


def random_rows(env: gym.Env[Any, Any], size: int, seed: int) -> Rows:
    """`size` transitions of a uniformly random policy."""
    return policy_rows(env, lambda _obs: env.action_space.sample(), size, seed)


def policy_rows(env: gym.Env[Any, Any], act: Act, size: int, seed: int) -> Rows:
    """`size` transitions of a policy; the last episode is cut there and marked truncated."""
    if size < 1:
        raise DatasetError(f"a dataset needs at least 1 transition, got size {size}")
    _require_flat_spaces(env)
    # Datasets number choices from 0, wherever the environment starts.
    first_choice = getattr(env.action_space, "start", 0)
    rows = stack_rows(roll_out(env, act, seed=seed, steps=size), first_choice)
    rows["truncations"][-1] |= not rows["terminations"][-1]
    return rows


def stack_rows(transitions: Iterable[Transition], first_choice: int = 0) -> Rows:
    """One array per field; discrete actions become int64, everything else float32 or bool."""
    stream = iter(transitions)
    pieces = [_stack(piece, first_choice) for piece in iter(lambda: _take(stream), [])]
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}


def _take(stream: Iterator[Transition]) -> list[Transition]:
    return list(islice(stream, _PIECE))


def _stack(transitions: list[Transition], first_choice: int) -> Rows:
    obs, actions, rewards, next_obs, terminations, truncations, _ = zip(*transitions, strict=True)
    choices = np.array(actions)
    discrete = np.issubdtype(choices.dtype, np.integer)
    return {
        "obs": np.array(obs, np.float32),
        "actions": choices.astype(np.int64) - first_choice
        if discrete
        else choices.astype(np.float32),
        "rewards": np.array(rewards, np.float32),
        "next_obs": np.array(next_obs, np.float32),
        "terminations": np.array(terminations, np.bool_),
        "truncations": np.array(truncations, np.bool_),
    }


def env_name(env: gym.Env[Any, Any]) -> str:
    """The registered id, or the class of an environment without one."""
    return env.spec.id if env.spec is not None else type(env.unwrapped).__name__


def _require_flat_spaces(env: gym.Env[Any, Any]) -> None:
    observations, actions = env.observation_space, env.action_space
    if not isinstance(observations, spaces.Box) or len(observations.shape) != 1:
        raise EnvError(f"data can be collected from flat observations only, not {observations}")
    flat = isinstance(actions, spaces.Box) and len(actions.shape) == 1
    if not flat and not isinstance(actions, spaces.Discrete):
        raise EnvError(f"data can be collected with Discrete or flat Box actions, not {actions}")
