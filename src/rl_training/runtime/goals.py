"""Whether a run and its environment agree about goals."""

from __future__ import annotations

import numpy as np

from rl_training.config import ConfigError, EnvError
from rl_training.envs.goal_rewards import GoalReward
from rl_training.runtime.config.train_config import TrainConfig
from rl_training.spec import GOAL_KEYS, ProblemSpec


def goal_reward(config: TrainConfig, spec: ProblemSpec) -> GoalReward | None:
    """What hindsight needs of the environment; None for a run without `her`."""
    assert config.env_id is not None
    wanted, keys = config.groups.replay.her, ", ".join(GOAL_KEYS)
    if spec.goal_dim and not wanted:
        how = (
            "set her: true to learn from them (with her_ratio: 0 no goal is replaced)"
            if config.regime == "online"
            else f"{config.regime} training cannot collect them; train online with her: true"
        )
        raise EnvError(f"{config.env_id} has goal observations ({keys}): {how}")
    if not wanted:
        return None
    if not spec.goal_dim:
        raise EnvError(f"her: true needs goal observations ({keys}), but {config.env_id} has none")
    reward = GoalReward(config.env_id, config.env_kwargs, spec.goal_dim)
    if getattr(config.groups.algorithm, "clip_targets", False):
        _check_range(reward, config.env_id, spec.goal_dim)
    return reward


def _check_range(reward: GoalReward, env_id: str, goal_dim: int) -> None:
    """Targets clipped to a range that returns do not have teach nothing, and nobody would know."""
    here = np.zeros((2, goal_dim), np.float32)
    there = np.stack([here[0], here[1] + 1])
    outside = [value for value in reward(here, there).tolist() if not -1 <= value <= 0]
    if outside:
        raise ConfigError(
            f"algo_kwargs.clip_targets: is for rewards from -1 to 0, but {env_id} gives "
            f"{outside[0]:g}; set it to false, or shape them with env_kwargs.wrappers.reward"
        )
