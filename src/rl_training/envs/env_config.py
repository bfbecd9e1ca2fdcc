"""`env_kwargs`: parsed and checked once, then passed on as an `EnvConfig`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from rl_training.config import ConfigError, Problem, unknown_key
from rl_training.envs.lookup import RESERVED_KEYS
from rl_training.envs.rewards import RewardTransformConfig

Use = Literal["training", "evaluation"]


@dataclass(frozen=True)
class EnvUse:
    """Arguments of `gymnasium.make` and reward shaping for one use of the environment."""

    make_kwargs: Mapping[str, Any] = field(default_factory=dict)
    reward: RewardTransformConfig = field(default_factory=RewardTransformConfig)


@dataclass(frozen=True)
class EnvConfig:
    """`env_kwargs` resolved for training and for evaluation."""

    training: EnvUse = EnvUse()
    evaluation: EnvUse = EnvUse()

    def for_use(self, use: Use) -> EnvUse:
        if use not in get_args(Use):
            raise ValueError(f"use must be 'training' or 'evaluation', got {use!r}")
        return self.training if use == "training" else self.evaluation


EnvKwargs: TypeAlias = EnvConfig | Mapping[str, Any] | None  # parsed, or as a user writes them


def parse_env_kwargs(env_kwargs: EnvKwargs) -> EnvConfig:
    """Resolve `env_kwargs`; a ConfigError names everything that is wrong with them.

    Options that were parsed before are returned as they are.
    """
    if isinstance(env_kwargs, EnvConfig):
        return env_kwargs
    parser = _Parser()
    whole = parser.mapping(env_kwargs, ("env_kwargs",))
    shared = {key: value for key, value in whole.items() if key not in RESERVED_KEYS}
    parser.check_make_kwargs(shared, ("env_kwargs",))
    reward = parser.reward_values(whole, ("env_kwargs",))
    parser.reward(reward, ("env_kwargs",))
    shared_is_valid = not parser.problems

    uses = {}
    for use in get_args(Use):
        path = ("env_kwargs", use)
        override = parser.mapping(whole.get(use), path)
        make_kwargs = {key: value for key, value in override.items() if key != "wrappers"}
        parser.check_make_kwargs(make_kwargs, path)
        use_reward = parser.reward_values(override, path)
        # Problems of the shared part are reported under their own path, once.
        merged = {**reward, **use_reward} if shared_is_valid else use_reward
        uses[use] = EnvUse({**shared, **make_kwargs}, parser.reward(merged, path))
    if parser.problems:
        raise ConfigError(parser.problems)
    return EnvConfig(uses["training"], uses["evaluation"])


def reward_wrappers_of(env_kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Select the reward wrappers, also those of one use, without options of one environment."""
    selected = {key: value for key, value in env_kwargs.items() if key == "wrappers"}
    for use in get_args(Use):
        override = env_kwargs.get(use) or {}
        if "wrappers" in override:
            selected[use] = {"wrappers": override["wrappers"]}
    return selected


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
            path = (*path, "wrappers", "reward")
            self.problems.extend(problem.under(*path) for problem in error.problems)
            return RewardTransformConfig()
