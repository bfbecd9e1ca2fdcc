"""Collection of logs: from a policy in an environment, or from the replay of an online run."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rl_training.config import CheckpointError, ConfigError
from rl_training.data.builtin.rows import Rows
from rl_training.data.collecting import collect, collect_random
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.envs.errors import closing, naming_the_env
from rl_training.envs.factory import make_raw_env
from rl_training.envs.goals import without_goals
from rl_training.envs.rewards import RewardTransformConfig
from rl_training.envs.spaces import ActionScaler, check_fits, infer_env_spaces
from rl_training.models.distributions import LOG_SQRT_2PI
from rl_training.runtime.assemble import load_policy, open_checkpoint
from rl_training.runtime.experience.build import build_buffer
from rl_training.runtime.policy import Policy
from rl_training.runtime.trust import choose_env, trust
from rl_training.spec import ProblemSpec

log = logging.getLogger("rl_training")

_PIECE = 8192  # rows that a network is asked about at a time


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

    def log_probs(rows: Rows) -> NDArray[Any] | None:
        if noise and deterministic:
            return _noise_log_probs(policy, rows, noise * (high - low) / 2)
        return None if noise or deterministic else _policy_log_probs(policy, rows)

    env = without_goals(make_raw_env(env_id, options))
    with closing(env, env_id), naming_the_env(env_id):
        return collect(env, act, steps, seed, log_probs)


def _policy_log_probs(policy: Policy, rows: Rows) -> NDArray[Any] | None:
    """Log-probabilities of drawn actions; None if the policy draws none, or a density is not exact."""
    discrete = policy.spec.action_kind == "discrete"
    if not discrete and _at_bounds(policy, rows):
        return None
    actions = rows["actions"] if discrete else ActionScaler(policy.spec).to_unit(rows["actions"])
    parts = []
    for start in range(0, len(actions), _PIECE):
        obs = torch.from_numpy(rows["obs"][start : start + _PIECE, : policy.spec.obs_dim])
        inputs = obs if policy.normalizer is None else policy.normalizer(obs)
        chosen = torch.from_numpy(actions[start : start + _PIECE])
        part = policy.algorithm.log_prob(inputs, chosen)
        if part is None:
            return None
        parts.append(part.double().numpy())
    units = 0.0 if discrete else float(policy.action_half.double().log().sum())
    return np.concatenate(parts) - units


def _noise_log_probs(policy: Policy, rows: Rows, std: NDArray[Any]) -> NDArray[Any] | None:
    """Log-densities of actions with Gaussian noise; None if the clipping has changed one."""
    if _at_bounds(policy, rows):
        return None
    means = policy.predict(rows["obs"][:, : policy.spec.obs_dim]).astype(np.float64)
    halves = ((rows["actions"] - means) / std) ** 2 / 2 + np.log(std)
    log_probs: NDArray[Any] = -halves.sum(1) - LOG_SQRT_2PI * len(std)
    return log_probs


def _at_bounds(policy: Policy, rows: Rows) -> bool:
    """True if an action is at a bound, where clipping or the rounding of tanh has changed its density."""
    unit = ActionScaler(policy.spec).to_unit(rows["actions"])
    at_bounds = int((np.abs(unit) >= 1 - 1e-5).any(axis=1).sum())
    fixed = bool((policy.action_half == 0).any())
    if at_bounds or fixed:
        log.info(
            "no behavior_log_probs: %s",
            "an action has a range of one value"
            if fixed
            else f"{at_bounds:,} of {len(unit):,} actions are at "
            "their bounds, where densities are not exact",
        )
    return bool(at_bounds) or fixed


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
