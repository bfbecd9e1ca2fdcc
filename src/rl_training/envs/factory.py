"""Environments for training and evaluation from `env_id` and `env_kwargs`."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import gymnasium as gym
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from rl_training.config import ConfigError, Problem
from rl_training.envs.env_config import EnvKwargs, Use, parse_env_kwargs
from rl_training.envs.goals import without_goals
from rl_training.envs.lookup import build_env
from rl_training.envs.ray_envs import RayEnvs
from rl_training.envs.rewards import apply_reward_wrappers
from rl_training.envs.seeded_episodes import SeededEpisodes
from rl_training.envs.worker_envs import WorkerEnvs
from rl_training.imports import forget_safe_path, starting_processes


def make_env(
    env_id: str,
    env_kwargs: EnvKwargs = None,
    *,
    use: Use = "training",
    render_mode: str | None = None,
) -> gym.Env[Any, Any]:
    """Make the environment of one use, inside its reward wrappers."""
    options = parse_env_kwargs(env_kwargs)
    env = make_raw_env(env_id, options, use=use, render_mode=render_mode)
    return apply_reward_wrappers(env, options.for_use(use).reward)


def make_raw_env(
    env_id: str,
    env_kwargs: EnvKwargs = None,
    *,
    use: Use = "training",
    render_mode: str | None = None,
) -> gym.Env[Any, Any]:
    """Make the environment of one use, with its raw reward."""
    make_kwargs = dict(parse_env_kwargs(env_kwargs).for_use(use).make_kwargs)
    if render_mode is not None:
        make_kwargs["render_mode"] = render_mode
    return build_env(env_id, make_kwargs)


def make_vector_env(
    env_id: str,
    num_envs: int = 1,
    env_kwargs: EnvKwargs = None,
    *,
    use: Use = "training",
    vector_env: Literal["sync", "async", "ray"] = "sync",
    asynchronous: bool = False,
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    episode_seed: int | None = None,
    copy: bool = True,
    goals: bool | None = None,
    step_timeout: float | None = None,
) -> VectorEnv[Any, Any, Any]:
    """Make a vector environment of `num_envs` copies.

    In gymnasium's default NEXT_STEP mode the step after an episode's end only resets: its action is
    ignored and it is no transition. In SAME_STEP mode the last observation is in `info["final_obs"]`.

    Args:
        env_id: A registered id or `module:Name`.
        num_envs: Number of copies.
        env_kwargs: As in the configuration.
        use: Whose overrides of `env_kwargs` hold.
        vector_env: Copies in this process, in a process each, or in a Ray actor each.
        asynchronous: Another way to say `vector_env="async"`.
        autoreset_mode: As gymnasium has it.
        episode_seed: Seeds every episode by its number (`SeededEpisodes`).
        copy: False gives observations that hold until the next step only.
        goals: Gives goal observations as vectors (`FlatGoals`), with the achieved goal or without.
        step_timeout: Seconds that copies outside of this process have for a step.
    """
    if num_envs < 1:
        raise ConfigError([Problem(("num_envs",), f"must be >= 1, got {num_envs}")])
    options = parse_env_kwargs(env_kwargs)
    makers = [
        partial(_make_member, env_id, options, use, episode_seed, index, goals)
        for index in range(num_envs)
    ]
    if vector_env == "ray":
        return RayEnvs(
            makers,
            registered=gym.registry.get(env_id),
            step_timeout=step_timeout,
            copy=copy,
            autoreset_mode=autoreset_mode,
        )
    if asynchronous or vector_env == "async":
        with starting_processes():
            return WorkerEnvs(
                makers, step_timeout=step_timeout, copy=copy, autoreset_mode=autoreset_mode
            )
    return SyncVectorEnv(makers, copy=copy, autoreset_mode=autoreset_mode)


def _make_member(
    env_id: str,
    env_kwargs: EnvKwargs,
    use: Use,
    episode_seed: int | None,
    index: int,
    goals: bool | None,
) -> gym.Env[Any, Any]:
    forget_safe_path()  # in a process of its own
    env = make_env(env_id, env_kwargs, use=use)
    if goals is not None:
        env = without_goals(env, achieved=goals)
    return env if episode_seed is None else SeededEpisodes(env, episode_seed, index)
