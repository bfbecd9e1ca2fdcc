"""Commands on the policy of a checkpoint: evaluate, predict."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike, NDArray

from rl_training.config import ConfigError
from rl_training.envs.errors import closed_afterwards
from rl_training.envs.spaces import check_fits, infer_env_spaces
from rl_training.runtime.assemble import load_policy, open_checkpoint
from rl_training.runtime.config.train_config import TrainConfig
from rl_training.runtime.evaluation.evaluator import Evaluation, Evaluator
from rl_training.runtime.policy import Policy
from rl_training.runtime.seeding import episode_seeds
from rl_training.runtime.trust import choose_env, trust


def evaluate_policy(
    policy: Policy,
    config: TrainConfig,
    *,
    num_episodes: int = 10,
    seed: int | None = None,
    env_id: str | None = None,
    deterministic: bool = True,
    video_dir: Path | None = None,
    source: str | Path = "the checkpoint",
) -> Evaluation:
    """Score whole episodes on the raw reward, from initial states that training never evaluated.

    `source` is where `config` comes from, for the error if it names an environment that is not trusted.
    """
    if num_episodes < 1:
        raise ConfigError(f"the number of episodes must be >= 1, got {num_episodes}")
    env_id, options = choose_env(config, env_id, source)
    check_fits(env_id, infer_env_spaces(env_id, options), policy.spec)
    evaluator = Evaluator(policy, env_id, options, video_dir=video_dir)
    with closed_afterwards(evaluator.close):
        seeds = episode_seeds(config.seed if seed is None else seed, "scoring", num_episodes)
        return evaluator.run(seeds, deterministic=deterministic)


def evaluate_checkpoint(
    path: str | Path, *, num_episodes: int = 10, trust_env: bool = False, **options: Any
) -> dict[str, float]:
    """Return the scores of a checkpoint's policy; `options` are those of `evaluate_policy`.

    `trust_env` allows the checkpoint to name an environment `module:Name`.
    """
    checkpoint, config = open_checkpoint(path, policy_only=True)
    if trust_env:
        trust(config.env_id)
    policy = load_policy(checkpoint, config)
    options = {"num_episodes": num_episodes, "source": checkpoint.path, **options}
    return evaluate_policy(policy, config, **options).metrics()


def predict_checkpoint(
    path: str | Path, obs: ArrayLike | Mapping[str, Any], *, deterministic: bool = True
) -> NDArray[Any]:
    """Return actions of a checkpoint's policy; to predict often, keep the managed class in memory."""
    checkpoint, config = open_checkpoint(path, policy_only=True)
    return load_policy(checkpoint, config).predict(obs, deterministic=deterministic)
