"""Environments: made from an id, shaped in their reward, described by a `ProblemSpec`.

- `factory`          `make_env`, `make_vector_env`: from an id and options to an environment
- `env_config`       `env_kwargs`, parsed and checked once
- `lookup`           ids, `module:Name`, and errors that say what to change
- `rewards`          reward scaling, shifting and clipping
- `rollout`          the loop that plays an environment with a policy
- `spaces`           supported spaces, and actions between [-1, 1] and the environment's units
- `seeded_episodes`  episodes seeded by their number, which exact resume plays again
- `worker_envs`      environments in a process each
- `ray_envs`         environments in a Ray actor each, on other machines
- `ray_member`       the actor of one of them
- `ray_cluster`      connection to Ray, and room for environments on it
- `goals`            goal observations as vectors
- `goal_rewards`     rewards for other goals, for hindsight experience replay
- `goal_envs`        two small environments with goals
- `plain_warnings`   no colour codes in warnings outside of terminals
- `step_checks`      what `reset` and `step` may return
- `errors`           errors of an environment's own code in one line
"""

from rl_training.envs.env_config import EnvConfig, EnvUse, parse_env_kwargs
from rl_training.envs.factory import make_env, make_raw_env, make_vector_env
from rl_training.envs.goal_rewards import GoalReward
from rl_training.envs.goals import FlatGoals, has_goals, without_goals
from rl_training.envs.rewards import (
    RewardClipWrapper,
    RewardScaleWrapper,
    RewardShiftWrapper,
    RewardTransformConfig,
    apply_reward_wrappers,
)
from rl_training.envs.rollout import Transition, roll_out
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
    "Transition",
    "apply_reward_wrappers",
    "has_goals",
    "infer_env_spaces",
    "make_env",
    "make_raw_env",
    "make_vector_env",
    "parse_env_kwargs",
    "problem_spec",
    "roll_out",
    "to_env_action",
    "to_unit_action",
    "without_goals",
]
