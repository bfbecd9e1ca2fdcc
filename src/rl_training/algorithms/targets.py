"""Mathematics that several algorithms share."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from rl_training.algorithms.argument_checks import require_ensemble, require_rows
from rl_training.data.transitions.batch import Batch
from rl_training.models import CategoricalActor, EnsembleMLP, least_q, pick


def td_target(
    *, rewards: Tensor, terminations: Tensor, next_values: Tensor, gamma: float | Tensor
) -> Tensor:
    """R + γ (1 - terminated) V(s'), (batch,): a truncated transition bootstraps like any other."""
    require_rows(rewards=rewards, terminations=terminations, next_values=next_values)
    if isinstance(gamma, float):
        return torch.addcmul(rewards, 1 - terminations, next_values, value=gamma)
    return torch.addcmul(rewards, gamma * (1 - terminations), next_values)


def batch_target(batch: Batch, next_values: Tensor, gamma: float) -> Tensor:
    """`td_target` of a batch, for values (batch,) of its next observations.

    Rows that reach over several steps carry their own discounts.
    """
    return td_target(
        rewards=batch.rewards,
        terminations=batch.terminations,
        next_values=next_values,
        gamma=gamma if batch.discounts is None else batch.discounts,
    )


def smooth_actions(
    actions: Tensor, noise: Tensor, *, policy_noise: float, noise_clip: float
) -> Tensor:
    """TD3's target policy smoothing: standard normal `noise`, scaled, clipped, added, clipped."""
    return (actions + (noise * policy_noise).clamp(-noise_clip, noise_clip)).clamp(-1, 1)


def ensemble_mse(q_values: Tensor, target_q: Tensor) -> Tensor:
    """Sum over critics of the batch-mean squared error; q (critics, batch), target (batch,)."""
    errors = F.mse_loss(q_values, target_q.expand_as(q_values), reduction="none")
    return errors.sum((-2, -1)) / target_q.shape[-1]


def critic_terms(q_values: Tensor, target_q: Tensor) -> dict[str, Tensor]:
    """The loss of critics that regress one target, and what to watch of it."""
    require_ensemble(q_values=q_values, target=target_q)
    seen = q_values.detach()
    return {
        "critic_loss": ensemble_mse(q_values, target_q),
        "q_mean": seen.mean((-2, -1)),
        "q_max": seen.amax((-2, -1)),
        "target_q_mean": target_q.mean(-1),
    }


def imitation_terms(
    log_probs: Tensor, advantages: Tensor, weights: Tensor, *, max_weight: float | None = None
) -> dict[str, Tensor]:
    """The loss of an actor that clones logged actions by weight, and what to watch of it.

    `max_weight` is the upper bound of the weights, if they have one.
    """
    require_rows(log_probs=log_probs, advantages=advantages)
    capped = {}
    if max_weight is not None:
        capped = {"advantage_weight_capped": (weights >= max_weight).float().mean(-1)}
    return {
        "actor_loss": -(weights * log_probs).mean(-1),
        "log_prob_mean": log_probs.mean(-1),
        "advantage_mean": advantages.mean(-1),
        "advantage_weight_mean": weights.mean(-1),
        "advantage_weight_max": weights.amax(-1),
        **capped,
    }


def logged_q(critic: EnsembleMLP, batch: Batch) -> Tensor:
    """Every critic at the logged actions, (critics, batch); discrete ones know all choices."""
    if batch.actions.ndim == 1:
        return pick(critic(batch.obs), batch.actions)
    return critic(batch.obs, batch.actions)


def policy_values(actor: Any, critic: EnsembleMLP, obs: Tensor, noise: Tensor) -> Tensor:
    """The least critic at an action drawn with `noise`, or its expectation over choices: (batch,)."""
    if isinstance(actor, CategoricalActor):
        return (actor(obs).exp() * critic(obs).amin(0)).sum(-1)
    return critic(obs, actor.draw(obs, noise)).amin(0)


def logged_and_own_q(
    actor: Any, critic: EnsembleMLP, batch: Batch, noise: Tensor
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The least critic at logged actions (batch,) and at the policy's own (batch, samples).

    Own actions are drawn with `noise` (samples, batch, action_dim), or all choices; then their
    probabilities come third.
    """
    if isinstance(actor, CategoricalActor):
        q_values = critic(batch.obs).amin(0)
        return pick(q_values, batch.actions), q_values, actor(batch.obs).exp()
    # in one forward pass
    actions = torch.cat([batch.actions.unsqueeze(0), actor.draw(batch.obs, noise)])
    q_values = least_q(critic, batch.obs, actions)
    return q_values[:, 0], q_values[:, 1:], None


def policy_gradient_terms(q_values: Tensor) -> dict[str, Tensor]:
    """The loss of a deterministic policy; q_values (batch,) at its own actions."""
    require_rows(q_values=q_values)
    policy_q = q_values.mean(-1)
    return {"actor_loss": -policy_q, "policy_q_mean": policy_q}


def quantile_huber(quantiles: Tensor, targets: Tensor) -> Tensor:
    """Mean over all pairs of a quantile (critics, batch, m) and a target (batch, n)."""
    count = quantiles.shape[-1]
    shares = (torch.arange(count, device=quantiles.device) + 0.5) / count
    excess = quantiles.unsqueeze(-1) - targets.unsqueeze(-2)  # (critics, batch, m, n)
    # 1 where a quantile is above a target, else 0; to compare, and convert, takes five times as long
    above = excess.detach().sign().relu_()
    weights = (shares.unsqueeze(-1) - above).abs()
    zero = torch.zeros((), device=excess.device)
    huber = F.smooth_l1_loss(excess, zero.expand_as(excess), reduction="none")
    return (weights * huber).mean((-4, -3, -2, -1))


def soft_actor_terms(*, values: Tensor, log_probs: Tensor, alpha: Tensor) -> dict[str, Tensor]:
    """SAC's policy loss; values and log_probs (batch,) at the policy's own actions."""
    require_rows(values=values, log_probs=log_probs)
    return {
        "actor_loss": (alpha.detach() * log_probs - values).mean(-1),
        "policy_q_mean": values.mean(-1),
        "entropy": -log_probs.mean(-1),
    }


def temperature_terms(
    *, log_alpha: Tensor, log_probs: Tensor, target_entropy: float
) -> dict[str, Tensor]:
    """SAC's temperature, which falls while the policy has entropy to spare; log_probs (batch,) or their mean."""
    mean = log_probs.detach().mean(-1) if log_probs.ndim else log_probs.detach()
    excess = mean + target_entropy
    return {"temperature_loss": -log_alpha * excess, "alpha": log_alpha.exp()}


def conservative_gap(
    *, q_values: Tensor, sampled_q: Tensor, log_densities: Tensor | None, temperature: float = 1.0
) -> Tensor:
    """CQL: soft maximum over sampled actions minus the logged action's value, (critics, batch).

    q_values (critics, batch), sampled_q (critics, samples, batch), log_densities (samples, batch)
    of the proposals that drew the actions; without them the logged action joins the samples.
    """
    if log_densities is None:
        scores = torch.cat([sampled_q, q_values.unsqueeze(-2)], -2)
    else:
        scores = sampled_q - log_densities
    return temperature * (scores / temperature).logsumexp(-2) - q_values


def calibrated(sampled_q: Tensor, returns: Tensor, num_uniform: int) -> Tensor:
    """Cal-QL: values of the policy's actions not below what the data really returned.

    sampled_q (critics, samples, batch), the first `num_uniform` samples being uniform ones, which
    stay; returns (batch,).
    """
    own = torch.maximum(sampled_q[:, num_uniform:], returns)
    return torch.cat([sampled_q[:, :num_uniform], own], 1)


def max_backup(*, next_q: Tensor, log_probs: Tensor, alpha: Tensor | float) -> Tensor:
    """Soft value of the best of several next actions by the least critic, (batch,).

    next_q (critics, samples, batch), log_probs (samples, batch); alpha 0 leaves entropy out.
    """
    values, best = next_q.amin(0).max(0)
    return values - alpha * log_probs.gather(0, best.unsqueeze(0)).squeeze(0)
