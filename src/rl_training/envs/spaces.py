"""Supported spaces, and actions between [-1, 1] and the environment's units."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from numpy.typing import ArrayLike, NDArray

from rl_training.config import EnvError
from rl_training.envs.env_config import EnvKwargs
from rl_training.envs.errors import closing
from rl_training.envs.factory import make_raw_env
from rl_training.envs.goals import has_goals
from rl_training.spec import ProblemSpec, unit_scale

_FLATTEN = (
    "wrap the environment in gymnasium.wrappers.FlattenObservation "
    "(gymnasium.register takes a function that returns it wrapped)"
)


def infer_env_spaces(
    env_or_id: gym.Env[Any, Any] | VectorEnv[Any, Any, Any] | str,
    env_kwargs: EnvKwargs = None,
) -> ProblemSpec:
    """Read sizes and bounds of an environment; an EnvError if its spaces are not supported."""
    if isinstance(env_or_id, VectorEnv):
        return problem_spec(env_or_id.single_observation_space, env_or_id.single_action_space)
    if isinstance(env_or_id, gym.Env):
        name = env_or_id.spec.id if env_or_id.spec is not None else ""
        return problem_spec(env_or_id.observation_space, env_or_id.action_space, name)
    env = make_raw_env(env_or_id, env_kwargs)
    with closing(env, env_or_id):
        return problem_spec(env.observation_space, env.action_space, env_or_id)


def problem_spec(
    observation_space: spaces.Space[Any], action_space: spaces.Space[Any], name: str = ""
) -> ProblemSpec:
    """The spec of one pair of spaces; `name` opens the error if they are not supported."""
    prefix = f"{name}: " if name else ""
    obs_problem = _observation_problem(observation_space)
    if obs_problem:
        raise EnvError(f"{prefix}{obs_problem}; observation space: {_short(observation_space)}")
    obs_dim, goal_dim = _widths(observation_space)
    if isinstance(action_space, spaces.Discrete):
        return ProblemSpec(
            obs_dim,
            "discrete",
            int(action_space.n),
            action_start=int(action_space.start),
            goal_dim=goal_dim,
        )
    action_problem = _action_problem(action_space)
    if action_problem:
        raise EnvError(f"{prefix}{action_problem}; action space: {_short(action_space)}")
    assert isinstance(action_space, spaces.Box)
    return ProblemSpec(
        obs_dim,
        "continuous",
        action_space.shape[0],
        action_low=tuple(map(float, action_space.low)),
        action_high=tuple(map(float, action_space.high)),
        goal_dim=goal_dim,
    )


def check_fits(
    env_id: str, problem: ProblemSpec, policy: ProblemSpec, *, bounds: bool = False
) -> None:
    """Refuse an environment in which the policy cannot act; with `bounds`, not all of its actions."""
    reasons = problem.misfits(policy)
    if bounds and not reasons:
        reasons = _out_of_bounds(problem, policy)
    if reasons:
        raise EnvError(f"{env_id} does not fit the policy: {'; '.join(reasons)}")


def _out_of_bounds(problem: ProblemSpec, policy: ProblemSpec) -> list[str]:
    low, high = np.array(problem.action_low), np.array(problem.action_high)
    slack = 1e-4 * (high - low) + 1e-6  # rounding of a log is not another range
    below = np.array(policy.action_low) < low - slack
    outside = np.flatnonzero(below | (np.array(policy.action_high) > high + slack))
    if not len(outside):
        return []
    index = int(outside[0])
    return [
        f"it bounds action {index} by {low[index]:g} and {high[index]:g}, the policy by "
        f"{policy.action_low[index]:g} and {policy.action_high[index]:g}; train offline with this "
        "env_id, or with action_low and action_high within its bounds"
    ]


def _widths(space: spaces.Space[Any]) -> tuple[int, int]:
    """Width of a supported observation as a vector, and of a goal in it."""
    if not isinstance(space, spaces.Dict):
        return spaces.flatdim(space), 0
    return spaces.flatdim(space), spaces.flatdim(space["desired_goal"])


def _short(space: spaces.Space[Any]) -> str:
    """Print a space in one line: the bounds of a wide Box would fill pages."""
    text = " ".join(str(space).split())
    return text if len(text) <= 120 else f"{text[:117]}..."


def _observation_problem(space: spaces.Space[Any]) -> str | None:
    if isinstance(space, spaces.Dict) and has_goals(space):
        problems = (_observation_problem(part) for part in space.spaces.values())
        if space["achieved_goal"].shape != space["desired_goal"].shape:
            return "achieved_goal and desired_goal must have the same shape"
        return next(filter(None, problems), None)
    if not isinstance(space, spaces.Box):
        if isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
            return f"discrete observations must be one-hot vectors: {_FLATTEN}"
        return f"{type(space).__name__} observations are not supported: {_FLATTEN}"
    dimensions = len(space.shape)
    if dimensions == 3 or (dimensions == 2 and space.dtype == np.uint8):
        return (
            "image observations are not supported: "
            "use a variant with state observations, or a wrapper that encodes the images"
        )
    if dimensions != 1:
        return f"observations must be one-dimensional, not {dimensions}-dimensional: {_FLATTEN}"
    if space.shape[0] == 0:
        return "observations are empty"
    if not np.issubdtype(space.dtype, np.floating):
        return (
            f"observations must be floats, not {space.dtype}: "
            "wrap the environment in gymnasium.wrappers.DtypeObservation(env, numpy.float32)"
        )
    return None


def _action_problem(space: spaces.Space[Any]) -> str | None:
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        return (
            f"{type(space).__name__} actions are not supported: "
            "a wrapper can number their combinations as one Discrete space"
        )
    if not isinstance(space, spaces.Box):
        return f"{type(space).__name__} actions are not supported: use a Box or Discrete space"
    if len(space.shape) != 1 or space.shape[0] == 0:
        return (
            f"actions must be one-dimensional, not of shape {space.shape}: "
            "flatten them with gymnasium.wrappers.TransformAction"
        )
    if not np.issubdtype(space.dtype, np.floating):
        return f"continuous actions must be floats, not {space.dtype}"
    # A bound of the largest float is as good as none: the span overflows.
    with np.errstate(over="ignore", invalid="ignore"):
        span = np.asarray(space.high, np.float32) - np.asarray(space.low, np.float32)
    if not np.isfinite(span).all():
        return (
            "actions must be bounded, to be scaled to [-1, 1]: set finite bounds with "
            "gymnasium.wrappers.TransformAction or RescaleAction over a clipped space"
        )
    return None


class ActionScaler:
    """Actions between the policy's [-1, 1] and the environment's units; choices by their start."""

    def __init__(self, spec: ProblemSpec) -> None:
        self._discrete = spec.action_kind == "discrete"
        self._start = spec.action_start
        self._low = np.asarray(spec.action_low, np.float32)
        self._high = np.asarray(spec.action_high, np.float32)
        self._center, self._half, self._inverse = unit_scale(self._low, self._high)
        self._shifted = bool(self._center.any())

    def to_env(self, action: ArrayLike) -> NDArray[Any]:
        """Convert to what `env.step` takes, clipped to the bounds; one action or a batch."""
        if self._discrete:
            choice = np.asarray(action, np.int64)
            return choice + self._start if self._start else choice
        scaled = np.asarray(action, np.float32) * self._half
        if self._shifted:
            scaled += self._center
        # Several times faster than np.clip on one action.
        return np.minimum(np.maximum(scaled, self._low), self._high)

    def to_unit(self, action: ArrayLike) -> NDArray[Any]:
        """Convert to what the policy learns: in [-1, 1], or numbered from 0."""
        if self._discrete:
            return np.asarray(action, np.int64) - self._start
        scaled = (np.asarray(action, np.float32) - self._center) * self._inverse
        return np.minimum(np.maximum(scaled, np.float32(-1)), np.float32(1))


_scaler = lru_cache(maxsize=32)(ActionScaler)


def to_env_action(action: ArrayLike, spec: ProblemSpec) -> NDArray[Any]:
    return _scaler(spec).to_env(action)


def to_unit_action(action: ArrayLike, spec: ProblemSpec) -> NDArray[Any]:
    return _scaler(spec).to_unit(action)
