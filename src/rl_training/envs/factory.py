"""Environments for training and evaluation from `env_id` and `env_kwargs`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import gymnasium as gym
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from rl_training.config import ConfigError, Problem, unknown_key
from rl_training.envs.goals import FlatGoals
from rl_training.envs.lookup import RESERVED_KEYS, build_env
from rl_training.envs.rewards import RewardTransformConfig, apply_reward_wrappers
from rl_training.envs.seeded_episodes import SeededEpisodes

Use = Literal["training", "evaluation"]


@dataclass(frozen=True)
class EnvUse:
    """One use of the environment: what gymnasium gets, and how its reward is shaped."""

    make_kwargs: Mapping[str, Any]
    reward: RewardTransformConfig


@dataclass(frozen=True)
class EnvConfig:
    """`env_kwargs`, resolved for both uses."""

    training: EnvUse
    evaluation: EnvUse

    def for_use(self, use: Use) -> EnvUse:
        if use not in get_args(Use):
            raise ValueError(f"use must be 'training' or 'evaluation', got {use!r}")
        return self.training if use == "training" else self.evaluation


def parse_env_kwargs(env_kwargs: Mapping[str, Any] | None) -> EnvConfig:
    """Both uses of `env_kwargs`, or a ConfigError with everything that is wrong with them."""
    parser = _Parser()
    whole = parser.mapping(env_kwargs, ("env_kwargs",))
    shared = {key: value for key, value in whole.items() if key not in RESERVED_KEYS}
    parser.check_make_kwargs(shared, ("env_kwargs",))
    reward = parser.reward_values(whole, ("env_kwargs",))
    parser.reward(reward, ("env_kwargs",))
    base_is_valid = not parser.problems

    uses = {}
    for use in get_args(Use):
        path = ("env_kwargs", use)
        override = parser.mapping(whole.get(use), path)
        own = {key: value for key, value in override.items() if key != "wrappers"}
        parser.check_make_kwargs(own, path)
        own_reward = parser.reward_values(override, path)
        # Values of the shared part were judged at their own place; do not report them twice.
        merged = {**reward, **own_reward} if base_is_valid else own_reward
        uses[use] = EnvUse({**shared, **own}, parser.reward(merged, path))
    if parser.problems:
        raise ConfigError(parser.problems)
    return EnvConfig(uses["training"], uses["evaluation"])


class _Parser:
    """Collects problems, so that one message names them all."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def mapping(self, value: Any, path: tuple[str, ...]) -> dict[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self.problems.append(Problem(path, f"expected a mapping, got {value!r}"))
            return {}
        return {str(key): entry for key, entry in value.items()}

    def check_make_kwargs(self, kwargs: Mapping[str, Any], path: tuple[str, ...]) -> None:
        for key in kwargs:
            if key == "id":
                self.problems.append(Problem((*path, key), "set env_id instead"))
            elif key in RESERVED_KEYS:
                self.problems.append(Problem((*path, key), "belongs at the top of env_kwargs"))

    def reward_values(self, group: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
        path = (*path, "wrappers")
        wrappers = self.mapping(group.get("wrappers"), path)
        for key in wrappers:
            if key != "reward":
                self.problems.append(Problem((*path, key), unknown_key(key, ["reward"])))
        return self.mapping(wrappers.get("reward"), (*path, "reward"))

    def reward(self, values: Mapping[str, Any], path: tuple[str, ...]) -> RewardTransformConfig:
        try:
            return RewardTransformConfig(**values)
        except ConfigError as error:
            place = (*path, "wrappers", "reward")
            self.problems.extend(problem.under(*place) for problem in error.problems)
            return RewardTransformConfig()


def make_env(
    env_id: str,
    env_kwargs: Mapping[str, Any] | None = None,
    *,
    use: Use = "training",
    render_mode: str | None = None,
) -> gym.Env[Any, Any]:
    """The environment of one use, with its reward wrappers."""
    env = make_raw_env(env_id, env_kwargs, use=use, render_mode=render_mode)
    return apply_reward_wrappers(env, parse_env_kwargs(env_kwargs).for_use(use).reward)


def make_raw_env(
    env_id: str,
    env_kwargs: Mapping[str, Any] | None = None,
    *,
    use: Use = "training",
    render_mode: str | None = None,
) -> gym.Env[Any, Any]:
    """The environment of one use, with the reward that it gives itself."""
    make_kwargs = dict(parse_env_kwargs(env_kwargs).for_use(use).make_kwargs)
    if render_mode is not None:
        make_kwargs["render_mode"] = render_mode
    return build_env(env_id, make_kwargs)


def make_vector_env(
    env_id: str,
    num_envs: int = 1,
    env_kwargs: Mapping[str, Any] | None = None,
    *,
    use: Use = "training",
    asynchronous: bool = False,
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    episode_seed: int | None = None,
    copy: bool = True,
    goals: bool = False,
) -> VectorEnv[Any, Any, Any]:
    """`num_envs` copies side by side, in this process or in one process each.

    In gymnasium's default NEXT_STEP mode the step after an episode's end only resets: its action is
    ignored and it is no transition. In SAME_STEP mode the last observation is in `info["final_obs"]`.
    With `episode_seed` every episode is seeded from it by its number (`SeededEpisodes`). Without `copy`
    observations hold until the next step only. With `goals` goal observations are vectors of
    observation, desired goal and achieved goal (`FlatGoals`).
    """
    if num_envs < 1:
        raise ConfigError([Problem(("num_envs",), f"must be >= 1, got {num_envs}")])
    makers = [
        partial(_make_member, env_id, env_kwargs, use, episode_seed, index, goals)
        for index in range(num_envs)
    ]
    if asynchronous:
        return AsyncVectorEnv(makers, copy=copy, autoreset_mode=autoreset_mode)
    return SyncVectorEnv(makers, copy=copy, autoreset_mode=autoreset_mode)


def _make_member(
    env_id: str,
    env_kwargs: Mapping[str, Any] | None,
    use: Use,
    episode_seed: int | None,
    index: int,
    goals: bool,
) -> gym.Env[Any, Any]:
    env = make_env(env_id, env_kwargs, use=use)
    if goals:
        env = FlatGoals(env, achieved=True)
    return env if episode_seed is None else SeededEpisodes(env, episode_seed, index)
