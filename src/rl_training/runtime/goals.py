"""Whether a run and its environment agree about goals."""

from __future__ import annotations

from rl_training.config import EnvError
from rl_training.envs.goal_rewards import GoalReward
from rl_training.runtime.train_config import TrainConfig
from rl_training.spec import GOAL_KEYS, ProblemSpec


def goal_reward(config: TrainConfig, spec: ProblemSpec) -> GoalReward | None:
    """What hindsight needs of the environment; None for a run without `her`."""
    assert config.env_id is not None
    wanted, keys = config.groups.replay.her, ", ".join(GOAL_KEYS)
    if spec.goal_dim and not wanted:
        raise EnvError(
            f"{config.env_id} has goal observations ({keys}): set her: true to learn from them "
            "(with her_ratio: 0 no goal is replaced)"
        )
    if not wanted:
        return None
    if not spec.goal_dim:
        raise EnvError(f"her: true needs goal observations ({keys}), but {config.env_id} has none")
    return GoalReward(config.env_id, config.env_kwargs, spec.goal_dim)
