"""REDQ: many critics, many updates of them per step, one of the policy. Chen et al. 2021.

critic       min_Q  Σ_i E[(Q_i(s,a) - y)²],   `gradient_updates_per_step` times per step
             y = r + γ (1-d) (min_{i∈M} Q̄_i(s',a') - α log π(a'|s')),   a' ~ π(·|s')
             M: `subset_size` critics, drawn anew for each update and the same for its batch
actor        min_π  E[α log π(a|s) - mean_i Q_i(s,a)],   once after these, with the temperature
temperature  min_α  -E[log α (log π(a|s) + H)]
"""

from __future__ import annotations

from typing import Any

import torch
from pydantic import model_validator
from torch import Tensor

from rl_training.algorithms.base import Algorithm, Noise, Terms, target_of
from rl_training.algorithms.registry import register
from rl_training.algorithms.soft import (
    SoftConfig,
    joint_update_step,
    new_temperature,
    temperature_loss,
)
from rl_training.algorithms.targets import (
    batch_target,
    critic_terms,
    soft_actor_terms,
    temperature_terms,
)
from rl_training.config import option
from rl_training.data.replay_config import replay_options
from rl_training.data.transitions.batch import Batch
from rl_training.models import EnsembleMLP, Init, SquashedGaussianActor
from rl_training.spec import ProblemSpec


class REDQConfig(SoftConfig):
    num_critics: int = option(10, "critics in the ensemble", ge=1)
    subset_size: int = option(2, "critics of which a target takes the smallest value", ge=1)

    @model_validator(mode="after")
    def _subset_fits(self) -> REDQConfig:
        if self.subset_size > self.num_critics:
            raise ValueError(f"subset_size must be <= num_critics, which is {self.num_critics}")
        return self


def redq_critic_loss(*, q_values: Tensor, target_q: Tensor) -> Terms:
    """q_values (critics, batch), target_q (batch,)."""
    return critic_terms(q_values, target_q)


def redq_actor_loss(*, q_values: Tensor, log_probs: Tensor, alpha: Tensor) -> Terms:
    """q_values (critics, batch) and log_probs (batch,) at the policy's own actions."""
    return soft_actor_terms(values=q_values.mean(0), log_probs=log_probs, alpha=alpha)


redq_temperature_loss = temperature_terms


def redq_loss(
    *,
    q_values: Tensor,
    target_q: Tensor,
    policy_q_values: Tensor,
    log_probs: Tensor,
    log_alpha: Tensor,
    target_entropy: float,
) -> Terms:
    """All three in one dict."""
    alpha = log_alpha.exp()
    return {
        **redq_critic_loss(q_values=q_values, target_q=target_q),
        **redq_actor_loss(q_values=policy_q_values, log_probs=log_probs, alpha=alpha),
        **redq_temperature_loss(
            log_alpha=log_alpha, log_probs=log_probs, target_entropy=target_entropy
        ),
    }


def critic_loss(nets: REDQAlgorithm, batch: Batch, noise: Noise, config: REDQConfig) -> Terms:
    with torch.no_grad():
        actions, log_probs = nets.actor.draw(batch.next_obs, noise["next"])
        next_q = nets.target_critic(batch.next_obs, actions, noise["subset"]).amin(0)
        target_q = batch_target(batch, next_q - nets.temperature() * log_probs, config.gamma)
    return redq_critic_loss(q_values=nets.critic(batch.obs, batch.actions), target_q=target_q)


def actor_loss(nets: REDQAlgorithm, batch: Batch, noise: Noise, config: REDQConfig) -> Terms:
    actions, log_probs = nets.actor.draw(batch.obs, noise["policy"])
    q_values = nets.critic(batch.obs, actions)
    return redq_actor_loss(q_values=q_values, log_probs=log_probs, alpha=nets.temperature())


@register("redq", regimes=("online",))
class REDQAlgorithm(Algorithm[REDQConfig]):
    losses = {"critic": critic_loss, "actor": actor_loss, "temperature": temperature_loss}
    joint_updates = True
    replay = replay_options(learning_starts=5_000, gradient_updates_per_step=20)

    def build(self, spec: ProblemSpec, config: REDQConfig) -> None:
        sizes, init = config.hidden_sizes, Init(xavier=True)
        self.actor = SquashedGaussianActor(spec.obs_dim, spec.action_dim, sizes, init=init)
        self.critic: Any = EnsembleMLP(
            config.num_critics, spec.obs_dim + spec.action_dim, sizes, init=init
        )
        self.target_critic = target_of(self.critic)
        self.temperature = new_temperature(self)

    def update_step(self, batch: Batch) -> Terms:
        return joint_update_step(self, batch)


REDQ = REDQAlgorithm
