"""Environments: made from an id, shaped in their reward, described by a ProblemSpec."""

from rl_training.envs.factory import (
    EnvConfig,
    EnvUse,
    make_env,
    make_raw_env,
    make_vector_env,
    parse_env_kwargs,
)
from rl_training.envs.goal_rewards import GoalReward
from rl_training.envs.goals import FlatGoals, has_goals, without_goals
from rl_training.envs.rewards import (
    RewardClipWrapper,
    RewardScaleWrapper,
    RewardShiftWrapper,
    RewardTransformConfig,
    apply_reward_wrappers,
)
from rl_training.envs.spaces import (
    ActionScaler,
    infer_env_spaces,
    problem_spec,
    to_env_action,
    to_unit_action,
)

__all__ = [
    "ActionScaler",
    "EnvConfig",
    "EnvUse",
    "FlatGoals",
    "GoalReward",
    "RewardClipWrapper",
    "RewardScaleWrapper",
    "RewardShiftWrapper",
    "RewardTransformConfig",
    "apply_reward_wrappers",
    "has_goals",
    "infer_env_spaces",
    "make_env",
    "make_raw_env",
    "make_vector_env",
    "parse_env_kwargs",
    "problem_spec",
    "to_env_action",
    "to_unit_action",
    "without_goals",
]
