"""Shared parts of TD3 and its descendants: smoothed target actions and delayed policy updates.

An algorithm that uses these has `actor`, `critic`, `target_actor` and `target_critic`, and a config
that derives from `DelayedConfig`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from rl_training.algorithms.base import ActorCriticConfig, Algorithm, Noise, Terms
from rl_training.algorithms.targets import smooth_actions
from rl_training.config import option
from rl_training.data.transitions.batch import Batch


class DelayedConfig(ActorCriticConfig):
    """Options of TD3's target policy smoothing and delayed updates."""

    policy_noise: float = option(
        0.2, "standard deviation of the target policy's noise, in units of the action range", ge=0
    )
    noise_clip: float = option(0.5, "bound of that noise", ge=0)
    policy_delay: int = option(2, "critic updates per actor and target update", ge=1)
    exploration_noise: float = option(
        0.1, "standard deviation of the noise on collected actions, in units of their range", ge=0
    )


def smoothed_next_actions(nets: Any, batch: Batch, noise: Noise, config: DelayedConfig) -> Tensor:
    """ã = clip(π̄(s') + clip(ε σ, ±c), ±1), (batch, action_dim); ε is `noise["smoothing"]`."""
    return smooth_actions(
        nets.target_actor(batch.next_obs),
        noise["smoothing"],
        policy_noise=config.policy_noise,
        noise_clip=config.noise_clip,
    )


def least_target_q(nets: Any, batch: Batch, next_actions: Tensor) -> Tensor:
    """Clipped double Q: min_i Q̄_i(s', ã), (batch,)."""
    q_values: Tensor = nets.target_critic(batch.next_obs, next_actions)
    return q_values.amin(0)


def delayed_update_step(
    algorithm: Algorithm[Any], batch: Batch, shared: Terms | None = None
) -> Terms:
    """Update the critics; at every `policy_delay`-th update also the actor, and then the targets."""
    noise = {"smoothing": algorithm.standard_normal(batch.actions)}
    terms = algorithm.minimize("critic", batch, noise, shared)
    if (algorithm.update_count + 1) % algorithm.config.policy_delay == 0:
        terms |= algorithm.minimize("actor", batch, shared=shared)
        algorithm.track_targets(algorithm.config.tau)
    return terms


def explore_with_noise(
    algorithm: Algorithm[Any], obs: NDArray[np.float32], rng: np.random.Generator, progress: float
) -> NDArray[Any]:
    """Collect with a deterministic policy's actions plus Gaussian noise, clipped."""
    actions = algorithm.best_actions(obs)
    noise = rng.standard_normal(actions.shape, np.float32)
    actions = actions + algorithm.config.exploration_noise * noise
    return np.minimum(np.maximum(actions, np.float32(-1)), np.float32(1))
