"""Construction of the experience that a configuration asks for."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from rl_training.algorithms.base import Algorithm
from rl_training.config import ConfigError, EnvError
from rl_training.data.memory import check_replay_fits
from rl_training.data.packing.layout import RowLayout
from rl_training.data.replay.hindsight import HERReplayBuffer
from rl_training.data.replay.prioritized import PrioritizedReplayBuffer
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.data.replay_config import ReplayConfig
from rl_training.data.transitions.row_ring import row_bytes
from rl_training.envs.factory import make_vector_env
from rl_training.envs.goal_rewards import GoalReward
from rl_training.runtime.config.train_config import TrainConfig
from rl_training.runtime.experience.mixture import LoggedAndCollected
from rl_training.runtime.experience.offline import Offline
from rl_training.runtime.experience.offline_to_online import OfflineToOnline
from rl_training.runtime.experience.online import Online
from rl_training.runtime.experience.protocols import Experience
from rl_training.runtime.experience.single_env_collector import collector_for
from rl_training.runtime.prepare import TrainingData
from rl_training.runtime.seeding import stream_seed
from rl_training.spec import GOAL_KEYS, ProblemSpec


def build_experience(
    config: TrainConfig, data: TrainingData, algorithm: Algorithm[Any]
) -> Experience:
    """Build dataset sampling, collecting, or both, as the regime says."""
    data_seed = stream_seed(config.seed, "data")
    batch_size = config.groups.algorithm.batch_size
    if config.regime == "offline":
        assert data.dataset is not None
        return Offline(
            data.dataset.learning,
            batch_size,
            seed=data_seed,
            device=algorithm.device,
            members=algorithm.config.num_critics if algorithm.bootstraps_episodes else 0,
        )
    assert config.env_id is not None
    replay = config.groups.replay
    buffer = build_buffer(
        replay,
        data.spec,
        num_envs=config.num_envs,
        gamma=getattr(config.groups.algorithm, "gamma", 1.0),  # without one nothing bootstraps
        reward=goal_reward(config, data.spec),
        rows=config.total_timesteps,
    )
    envs = make_vector_env(
        config.env_id,
        config.num_envs,
        config.groups.env,
        vector_env=replay.vector_env,
        autoreset_mode=AutoresetMode.SAME_STEP,
        episode_seed=stream_seed(config.seed, "environment"),
        copy=False,
        goals=replay.her or data.spec.sees_achieved_goal,
        step_timeout=replay.env_step_timeout,
    )
    collector = collector_for(envs, data.spec, buffer, config.env_id)
    common: dict[str, Any] = {
        "total_steps": config.total_timesteps,
        "data_seed": data_seed,
        "exploration_seed": stream_seed(config.seed, "exploration"),
    }
    if data.dataset is None:
        return Online(collector, algorithm, replay, **common)
    sampler = LoggedAndCollected(
        data.dataset.learning, buffer, update_size=batch_size, normalizer=data.normalizer
    )
    finetuning = config.groups.offline_to_online
    return OfflineToOnline(
        collector, algorithm, replay, sampler=sampler, finetuning=finetuning, **common
    )


def build_buffer(
    options: ReplayConfig,
    spec: ProblemSpec,
    *,
    num_envs: int,
    gamma: float,
    reward: GoalReward | None = None,
    rows: int = 0,
) -> ReplayBuffer:
    """Build a uniform, prioritised or hindsight replay, for which `rows` rows of memory must be free.

    A hindsight replay is read-only without a reward.
    """
    layout = RowLayout(
        spec.obs_dim,
        spec.action_width,
        goal_dim=spec.goal_dim,
        sees_achieved_goal=spec.sees_achieved_goal,
    )
    check_replay_fits(options.buffer_capacity, row_bytes(layout), rows=rows)
    if options.her:
        return HERReplayBuffer(
            options.buffer_capacity,
            spec.obs_dim,
            spec.action_width,
            goal_dim=spec.goal_dim,
            sees_achieved_goal=spec.sees_achieved_goal,
            compute_reward=reward,
            compute_terminated=reward.terminated if reward and reward.knows_terminations else None,
            her_ratio=options.her_ratio if reward is not None else 0.0,
            goal_selection_strategy=options.goal_selection_strategy,
            discrete=spec.action_kind == "discrete",
            num_envs=num_envs,
        )
    shape: dict[str, Any] = {
        "capacity": options.buffer_capacity,
        "obs_dim": spec.obs_dim,
        "action_width": spec.action_width,
        "discrete": spec.action_kind == "discrete",
        "num_envs": num_envs,
        "n_step": options.n_step,
        "gamma": gamma,
    }
    if not options.prioritized:
        return ReplayBuffer(**shape)
    return PrioritizedReplayBuffer(
        **shape, exponent=options.priority_exponent, correction=options.priority_correction
    )


def goal_reward(config: TrainConfig, spec: ProblemSpec) -> GoalReward | None:
    """Return the goal reward that hindsight needs; None for a run without `her`."""
    assert config.env_id is not None
    hindsight, keys = config.groups.replay.her, ", ".join(GOAL_KEYS)
    if spec.goal_dim and not hindsight and config.regime == "online":
        raise EnvError(
            f"{config.env_id} has goal observations ({keys}): set her: true to learn from them "
            "(with her_ratio: 0 no goal is replaced)"
        )
    if not hindsight:
        return None
    if not spec.goal_dim:
        raise EnvError(f"her: true needs goal observations ({keys}), but {config.env_id} has none")
    reward = GoalReward(config.env_id, config.groups.env, spec.goal_dim)
    if getattr(config.groups.algorithm, "clip_targets", False):
        _check_range(reward, config.env_id, spec.goal_dim)
    return reward


def _check_range(reward: GoalReward, env_id: str, goal_dim: int) -> None:
    """Refuse `clip_targets` for rewards outside its range: clipped targets would be wrong unseen."""
    here = np.zeros((2, goal_dim), np.float32)
    there = np.stack([here[0], here[1] + 1])
    outside = [value for value in reward(here, there).tolist() if not -1 <= value <= 0]
    if outside:
        raise ConfigError(
            f"algo_kwargs.clip_targets: is for rewards from -1 to 0, but {env_id} gives "
            f"{outside[0]:g}; set it to false, or shape them with env_kwargs.wrappers.reward"
        )
