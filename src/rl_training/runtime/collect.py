"""Collection of logs: from a policy in an environment, or from the replay of an online run."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.config import CheckpointError, ConfigError
from rl_training.data.collecting import collect, collect_random
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.envs.errors import closing, naming_the_env
from rl_training.envs.factory import make_raw_env
from rl_training.envs.goals import without_goals
from rl_training.envs.rewards import RewardTransformConfig
from rl_training.envs.spaces import ActionScaler, check_fits, infer_env_spaces
from rl_training.runtime.assemble import load_policy, open_checkpoint
from rl_training.runtime.experience.build import build_buffer
from rl_training.runtime.trust import choose_env, trust
from rl_training.spec import ProblemSpec

log = logging.getLogger("rl_training")


def collect_dataset(
    *,
    env_id: str | None,
    checkpoint: str | Path | None,
    steps: int,
    noise: float = 0.0,
    deterministic: bool = True,
    seed: int = 0,
    trust_env: bool = False,
) -> TransitionDataset:
    """Collect `steps` transitions of a checkpoint's policy, or of a random one, on raw rewards."""
    if checkpoint is None:
        if env_id is None:
            raise ConfigError("collecting needs --env ID, --checkpoint PATH, or both")
        if noise or not deterministic:
            raise ConfigError("--noise and --stochastic need a --checkpoint to act with")
        env = without_goals(make_raw_env(env_id))
        with closing(env, env_id), naming_the_env(env_id):
            return collect_random(env, steps, seed)
    saved, config = open_checkpoint(checkpoint, policy_only=True)
    if trust_env:
        trust(config.env_id)
    env_id, options = choose_env(config, env_id, saved.path)
    policy = load_policy(saved, config)
    spaces = infer_env_spaces(env_id, options)
    check_fits(env_id, spaces, policy.spec)
    if noise and spaces.action_kind == "discrete":
        raise ConfigError("--noise is for continuous actions; --stochastic samples discrete ones")
    rng = np.random.default_rng(seed)
    low, high = np.array(spaces.action_low), np.array(spaces.action_high)

    def act(obs: NDArray[Any]) -> NDArray[Any]:
        # the log has all of a goal observation, of which an older policy sees the beginning
        action = policy.predict(obs[: policy.spec.obs_dim], deterministic=deterministic)
        if not noise:
            return action
        action = action + noise * (high - low) / 2 * rng.standard_normal(action.shape)
        return np.clip(action, low, high).astype(np.float32)

    env = without_goals(make_raw_env(env_id, options))
    with closing(env, env_id), naming_the_env(env_id):
        return collect(env, act, steps, seed)


def replay_dataset(run: str | Path) -> TransitionDataset:
    """Return the replay of an online run as a log in the environment's units."""
    saved, config = open_checkpoint(run)
    prefix = "replay."
    tensors = {
        key.removeprefix(prefix): value
        for key, value in saved.tensors.items()
        if key.startswith(prefix)
    }
    if "rows" not in tensors:
        raise CheckpointError(
            f"{saved.path} holds no replay: only online runs have one, in their newest checkpoint"
        )
    spec = ProblemSpec.from_dict(saved.manifest["spec"])
    buffer = build_buffer(config.groups.replay, spec, num_envs=config.num_envs, gamma=1.0)
    buffer.load_state_dict(tensors)
    if config.groups.env.training.reward != RewardTransformConfig():
        log.warning("the rewards are those that training saw, after env_kwargs.wrappers.reward")
    to_env = ActionScaler(spec).to_env
    actions = to_env if spec.action_kind == "continuous" else None  # logs count choices from 0
    return buffer.as_dataset(actions, source=str(run))
