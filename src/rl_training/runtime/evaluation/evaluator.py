"""Evaluation: whole episodes in a separate environment, with seeds of their own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rl_training.config import MissingExtraError, RunError
from rl_training.envs.env_config import EnvKwargs, parse_env_kwargs
from rl_training.envs.errors import StepAbandoned, naming_the_env
from rl_training.envs.factory import make_raw_env
from rl_training.envs.rollout import roll_out
from rl_training.runtime.loop.interrupt import StepGuard
from rl_training.runtime.policy import Policy

# far beyond any benchmark's limit; an episode this long will not end by itself
MAX_EPISODE_STEPS = 100_000


class EvaluationError(RunError):
    """Failure of the environment during an evaluation; the learner itself is intact."""


@dataclass(frozen=True)
class Evaluation:
    """Episodes of one evaluation; returns are the environment's own, undiscounted."""

    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]
    shaped_returns: NDArray[np.float64] | None = None
    successes: NDArray[np.float64] | None = None

    def metrics(self) -> dict[str, float]:
        values = {
            "eval/return_mean": float(self.returns.mean()),
            "eval/return_std": float(self.returns.std()),
            "eval/length_mean": float(self.lengths.mean()),
        }
        if self.shaped_returns is not None:
            values["eval/shaped_return_mean"] = float(self.shaped_returns.mean())
        if self.successes is not None:
            values["eval/success_rate"] = float(self.successes.mean())
        return values


class Evaluator:
    """Runs a policy on the raw reward; keeps its environment open between evaluations."""

    def __init__(
        self,
        policy: Policy,
        env_id: str,
        env_kwargs: EnvKwargs,
        *,
        video_dir: Path | None = None,
        guard: StepGuard | None = None,
    ) -> None:
        self.policy = policy
        self.guard = guard  # limits the wait for the environment
        self.env_id = env_id
        options = parse_env_kwargs(env_kwargs)
        self.shaping = options.evaluation.reward
        render_mode = None if video_dir is None else "rgb_array"
        self.env = make_raw_env(env_id, options, use="evaluation", render_mode=render_mode)
        if video_dir is not None:
            self.env = _recorded(self.env, video_dir)

    def run(self, seeds: Sequence[int], *, deterministic: bool = True) -> Evaluation:
        """Roll out one episode per seed."""
        episodes = [self._episode(seed, deterministic) for seed in seeds]
        successes = [episode["success"] for episode in episodes]
        return Evaluation(
            returns=np.array([episode["return"] for episode in episodes]),
            lengths=np.array([episode["length"] for episode in episodes]),
            shaped_returns=None
            if self.shaping.is_identity
            else np.array([episode["shaped"] for episode in episodes]),
            successes=None if None in successes else np.array(successes, dtype=np.float64),
        )

    def _episode(self, seed: int, deterministic: bool) -> dict[str, Any]:
        try:
            with naming_the_env(self.env_id), self.guard or nullcontext():
                episode = self._roll_out(seed, deterministic)
        except StepAbandoned as abandoned:
            if abandoned.timeout is None:  # after a signal
                raise
            raise RunError(
                f"{self.env_id}: a step of an evaluation has not ended within "
                f"{abandoned.timeout:g} seconds (env_step_timeout)"
            ) from None
        if not math.isfinite(episode["return"]):
            raise RunError(
                f"{self.env_id}: the return of the evaluation episode with seed {seed} is "
                f"{episode['return']}; the environment gives rewards that are not finite"
            )
        return episode

    def _roll_out(self, seed: int, deterministic: bool) -> dict[str, Any]:
        self.policy.reseed(seed)
        total = shaped = 0.0
        success: float | None = None
        played = roll_out(
            self.env,
            lambda obs: self.policy.predict(obs, deterministic=deterministic),
            seed=seed,
            episodes=1,
            steps=MAX_EPISODE_STEPS,
        )
        for length, step in enumerate(played, 1):
            if self.guard is not None:
                self.guard.renew()
            total += step.reward
            shaped += float(self.shaping.apply(step.reward))
            flag = step.info.get("is_success", step.info.get("success"))
            if flag is not None:
                success = max(success or 0.0, float(np.any(flag)))
            if step.ends_episode:
                return {"return": total, "shaped": shaped, "length": length, "success": success}
        raise RunError(
            f"an evaluation episode of {self.env_id} did not end within {MAX_EPISODE_STEPS} steps; "
            "set env_kwargs.max_episode_steps"
        )

    def close(self) -> None:
        """Close the environment; a failure names it."""
        with naming_the_env(self.env_id):
            self.env.close()


def _recorded(env: gym.Env[Any, Any], directory: Path) -> gym.Env[Any, Any]:
    try:
        import moviepy  # noqa: F401
    except ImportError:
        raise MissingExtraError("--video", "moviepy", "video") from None
    return gym.wrappers.RecordVideo(
        env, str(directory), episode_trigger=lambda _: True, name_prefix="eval", disable_logger=True
    )
