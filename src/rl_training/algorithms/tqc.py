"""TQC: SAC whose critics learn quantiles, of which targets drop the largest. Kuznetsov et al. 2020.

critic       min_θ  mean_{i,m,j} |τ_m - 1(δ < 0)| huber(δ),   δ = y_j - θ_im(s,a)
             y_j = r + γ (1-d) (z_(j) - α log π(a'|s')),   a' ~ π(·|s')
             z_(1) <= z_(2) <= ...: all target critics' quantiles at (s',a') together, sorted,
             without the `top_quantiles_to_drop_per_net` x critics largest
actor        min_π  E[α log π(a|s) - mean_im θ_im(s,a)],   a ~ π(·|s)
temperature  min_α  -E[log α (log π(a|s) + H)]
"""

from __future__ import annotations

from typing import Annotated, Any

import torch
from pydantic import Field, model_validator
from torch import Tensor

from rl_training.algorithms.argument_checks import require_ensemble
from rl_training.algorithms.base import Algorithm, Noise, Terms, target_of
from rl_training.algorithms.registry import register
from rl_training.algorithms.soft import (
    SoftConfig,
    new_temperature,
    policy_step,
    temperature_loss,
)
from rl_training.algorithms.targets import quantile_huber, soft_actor_terms, temperature_terms
from rl_training.config import option
from rl_training.data.transitions.batch import Batch
from rl_training.models import EnsembleMLP, SquashedGaussianActor
from rl_training.spec import ProblemSpec


class TQCConfig(SoftConfig):
    critic_hidden_sizes: tuple[Annotated[int, Field(ge=1, le=65_536)], ...] = option(
        (512, 512, 512), "width of each hidden layer of the critics"
    )
    num_critics: int = option(5, "critics whose quantiles are pooled", ge=1)
    num_quantiles: int = option(25, "quantiles of each critic", ge=1)
    top_quantiles_to_drop_per_net: int = option(
        2, "largest quantiles left out of the target, per critic", ge=0
    )

    @model_validator(mode="after")
    def _some_are_left(self) -> TQCConfig:
        if self.top_quantiles_to_drop_per_net >= self.num_quantiles:
            raise ValueError(
                "top_quantiles_to_drop_per_net must be less than num_quantiles, which is "
                f"{self.num_quantiles}"
            )
        return self


def tqc_critic_loss(*, quantiles: Tensor, target_quantiles: Tensor) -> Terms:
    """Quantiles (critics, batch, quantiles), target_quantiles (batch, kept)."""
    require_ensemble(quantiles=quantiles, target=target_quantiles)
    return {
        "critic_loss": quantile_huber(quantiles, target_quantiles),
        "q_mean": quantiles.mean((-3, -2, -1)),
        "q_max": quantiles.mean(-1).amax((-2, -1)),
        "target_q_mean": target_quantiles.mean((-2, -1)),
    }


def tqc_actor_loss(*, quantiles: Tensor, log_probs: Tensor, alpha: Tensor) -> Terms:
    """Quantiles (critics, batch, quantiles), log_probs (batch,) at the policy's own actions."""
    return soft_actor_terms(values=quantiles.mean((0, -1)), log_probs=log_probs, alpha=alpha)


tqc_temperature_loss = temperature_terms


def tqc_loss(
    *,
    quantiles: Tensor,
    target_quantiles: Tensor,
    policy_quantiles: Tensor,
    log_probs: Tensor,
    log_alpha: Tensor,
    target_entropy: float,
) -> Terms:
    """All three in one dict."""
    alpha = log_alpha.exp()
    return {
        **tqc_critic_loss(quantiles=quantiles, target_quantiles=target_quantiles),
        **tqc_actor_loss(quantiles=policy_quantiles, log_probs=log_probs, alpha=alpha),
        **tqc_temperature_loss(
            log_alpha=log_alpha, log_probs=log_probs, target_entropy=target_entropy
        ),
    }


def kept_quantiles(quantiles: Tensor, drop_per_net: int) -> Tensor:
    """The smallest of all critics' quantiles together: (critics, batch, m) to (batch, kept)."""
    critics, batch, each = quantiles.shape
    pooled = quantiles.transpose(0, 1).reshape(batch, critics * each)
    return pooled.sort(-1).values[:, : critics * (each - drop_per_net)]


def critic_loss(nets: TQCAlgorithm, batch: Batch, noise: Noise, config: TQCConfig) -> Terms:
    with torch.no_grad():
        actions, log_probs = nets.actor.draw(batch.next_obs, noise["next"])
        quantiles = nets.target_critic(batch.next_obs, actions)
        kept = kept_quantiles(quantiles, config.top_quantiles_to_drop_per_net)
        values = kept - (nets.temperature() * log_probs).unsqueeze(-1)
        gamma = config.gamma if batch.discounts is None else batch.discounts
        discounts = (gamma * (1 - batch.terminations)).unsqueeze(-1)
        target_quantiles = batch.rewards.unsqueeze(-1) + discounts * values
    return tqc_critic_loss(
        quantiles=nets.critic(batch.obs, batch.actions), target_quantiles=target_quantiles
    )


def actor_loss(nets: TQCAlgorithm, batch: Batch, noise: Noise, config: TQCConfig) -> Terms:
    actions, log_probs = nets.actor.draw(batch.obs, noise["policy"])
    quantiles = nets.critic(batch.obs, actions)
    return tqc_actor_loss(quantiles=quantiles, log_probs=log_probs, alpha=nets.temperature())


@register("tqc", regimes=("online",))
class TQCAlgorithm(Algorithm[TQCConfig]):
    losses = {"critic": critic_loss, "actor": actor_loss, "temperature": temperature_loss}

    def build(self, spec: ProblemSpec, config: TQCConfig) -> None:
        self.actor = SquashedGaussianActor(spec.obs_dim, spec.action_dim, config.hidden_sizes)
        self.critic: Any = EnsembleMLP(
            config.num_critics,
            spec.obs_dim + spec.action_dim,
            config.critic_hidden_sizes,
            config.num_quantiles,
        )
        self.target_critic = target_of(self.critic)
        self.temperature = new_temperature(self)

    def update_step(self, batch: Batch) -> Terms:
        noise = {name: self.standard_normal(batch.actions) for name in ("next", "policy")}
        terms = self.minimize("critic", batch, noise) | policy_step(self, batch, noise)
        self.track_targets(self.config.tau)
        return terms


TQC = TQCAlgorithm
