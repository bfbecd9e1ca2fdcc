"""Mathematics that several algorithms share, as functions of tensors."""

from __future__ import annotations

from torch import Tensor


def td_target(
    *, rewards: Tensor, terminations: Tensor, next_values: Tensor, gamma: float
) -> Tensor:
    """R + γ (1 - terminated) V(s'), (batch,): a truncated transition bootstraps like any other."""
    return rewards + gamma * (1 - terminations) * next_values


def smooth_actions(
    actions: Tensor, noise: Tensor, *, policy_noise: float, noise_clip: float
) -> Tensor:
    """TD3's target policy smoothing: standard normal `noise`, scaled, clipped, added, clipped."""
    return (actions + (noise * policy_noise).clamp(-noise_clip, noise_clip)).clamp(-1, 1)


def ensemble_mse(q_values: Tensor, target_q: Tensor) -> Tensor:
    """Sum over critics of the batch-mean squared error; q (critics, batch), target (batch,)."""
    return (q_values - target_q).square().mean(-1).sum(0)
