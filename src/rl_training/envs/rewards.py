"""Reward shaping inside the environment: scale, then shift, then clip.

One config drives both the wrappers that training sees and the shaped return that evaluation reports.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, SupportsFloat, overload

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from rl_training.config import ConfigError, Options, Problem, option
from rl_training.envs.step_checks import reward_number


class RewardTransformConfig(Options):
    """Transform of the raw reward into the one that is learned from."""

    scale: float = option(1.0, "factor on every reward")
    shift: float = option(0.0, "added after scaling")
    clip_min: float | None = option(None, "lower limit after scale and shift", unset="no limit")
    clip_max: float | None = option(None, "upper limit after scale and shift", unset="no limit")

    @model_validator(mode="after")
    def _rewards_stay_apart(self) -> RewardTransformConfig:
        if self.scale == 0:
            message = "must not be 0: every reward would be the same"
            raise ConfigError([Problem(("scale",), message)])
        low, high = self.clip_min, self.clip_max
        if low is not None and high is not None and low >= high:
            message = f"must be below clip_max ({high:g}), got {low:g}"
            raise ConfigError([Problem(("clip_min",), message)])
        return self

    @property
    def clips(self) -> bool:
        return self.clip_min is not None or self.clip_max is not None

    @property
    def is_identity(self) -> bool:
        return self.scale == 1.0 and self.shift == 0.0 and not self.clips

    @overload
    def apply(self, reward: NDArray[Any]) -> NDArray[Any]: ...
    @overload
    def apply(self, reward: float) -> float: ...
    def apply(self, reward: float | NDArray[Any]) -> float | NDArray[Any]:
        """The shaped reward, of one step or of an array of steps."""
        if isinstance(reward, np.ndarray):
            shaped = reward * self.scale + self.shift
            return np.clip(shaped, self.clip_min, self.clip_max) if self.clips else shaped
        value = reward * self.scale + self.shift
        if self.clip_min is not None:
            value = max(value, self.clip_min)
        if self.clip_max is not None:
            value = min(value, self.clip_max)
        return value


class _ShapedReward(gym.RewardWrapper[Any, Any], gym.utils.RecordConstructorArgs):
    """A reward wrapper that gymnasium can rebuild from its spec."""

    def __init__(self, env: gym.Env[Any, Any], **arguments: Any) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, **arguments)
        gym.RewardWrapper.__init__(self, env)
        self._transform = RewardTransformConfig(**arguments)

    def reward(self, reward: SupportsFloat) -> float:
        return self._transform.apply(reward_number(reward))


class RewardScaleWrapper(_ShapedReward):
    """Multiplies every reward by `scale`."""

    def __init__(self, env: gym.Env[Any, Any], scale: float) -> None:
        super().__init__(env, scale=scale)


class RewardShiftWrapper(_ShapedReward):
    """Adds `shift` to every reward."""

    def __init__(self, env: gym.Env[Any, Any], shift: float) -> None:
        super().__init__(env, shift=shift)


class RewardClipWrapper(_ShapedReward):
    """Keeps every reward between `clip_min` and `clip_max`; None leaves that side open."""

    def __init__(
        self,
        env: gym.Env[Any, Any],
        clip_min: float | None = None,
        clip_max: float | None = None,
    ) -> None:
        super().__init__(env, clip_min=clip_min, clip_max=clip_max)


def apply_reward_wrappers(
    env: gym.Env[Any, Any], config: RewardTransformConfig | Mapping[str, Any] | None
) -> gym.Env[Any, Any]:
    """Wrap `env` in those reward wrappers of `config` that change anything."""
    if config is None:
        return env
    if not isinstance(config, RewardTransformConfig):
        config = RewardTransformConfig(**config)
    if config.scale != 1.0:
        env = RewardScaleWrapper(env, config.scale)
    if config.shift != 0.0:
        env = RewardShiftWrapper(env, config.shift)
    if config.clips:
        env = RewardClipWrapper(env, config.clip_min, config.clip_max)
    return env
