"""RLPD: SAC that also learns from prior data, many times per step. Ball et al. 2023.

critic       min_Q  mean_i E[(Q_i(s,a) - y)²],   `gradient_updates_per_step` times per step
             y = r + γ (1-d) (min_{i∈M} Q̄_i(s',a') - α log π(a'|s')),   a' ~ π(·|s')
             M: `subset_size` critics, drawn anew for each update and the same for its batch
actor        min_π  E[α log π(a|s) - mean_i Q_i(s,a)],   once after these, with the temperature
temperature  min_α  -E[log α (log π(a|s) + H)]

The critics normalise every hidden layer (LayerNorm before ReLU). Every batch is half logged data and
half collected: `offline_batch_ratio`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from rl_training.algorithms.base import Algorithm, Noise, Terms, target_of
from rl_training.algorithms.redq import REDQConfig, actor_loss, redq_actor_loss
from rl_training.algorithms.registry import register
from rl_training.algorithms.soft import (
    joint_update_step,
    new_temperature,
    random_subset,
    temperature_loss,
)
from rl_training.algorithms.targets import batch_target, critic_terms, temperature_terms
from rl_training.config import option
from rl_training.data.offline_to_online_config import offline_to_online_options
from rl_training.data.replay_config import replay_options
from rl_training.data.transitions.batch import Batch
from rl_training.models import EnsembleMLP, Init, SquashedGaussianActor
from rl_training.spec import ProblemSpec


class RLPDConfig(REDQConfig):
    target_entropy: Annotated[float, Field(strict=True)] | Literal["auto"] = option(
        "auto", "entropy H that alpha aims at; auto (also null) = -dimensions / 2"
    )
    critic_layer_norm: bool = option(True, "normalise the critics' hidden layers")
    backup_entropy: bool = option(True, "whether targets hold the entropy term")

    def entropy_for(self, spec: ProblemSpec) -> float:
        """Target entropy: the option, else -dim(A) / 2."""
        return -spec.action_dim / 2 if self.target_entropy == "auto" else self.target_entropy


def rlpd_critic_loss(*, q_values: Tensor, target_q: Tensor) -> Terms:
    """q_values (critics, batch), target_q (batch,); a mean over critics, not SAC's sum."""
    terms = critic_terms(q_values, target_q)
    return {**terms, "critic_loss": terms["critic_loss"] / q_values.shape[0]}


rlpd_actor_loss = redq_actor_loss
rlpd_temperature_loss = temperature_terms


def rlpd_loss(
    *,
    q_values: Tensor,
    target_q: Tensor,
    policy_q_values: Tensor,
    log_probs: Tensor,
    log_alpha: Tensor,
    target_entropy: float,
) -> Terms:
    """All three in one dict."""
    critic = rlpd_critic_loss(q_values=q_values, target_q=target_q)
    actor = rlpd_actor_loss(q_values=policy_q_values, log_probs=log_probs, alpha=log_alpha.exp())
    return {
        **critic,
        **actor,
        **rlpd_temperature_loss(
            log_alpha=log_alpha, log_probs=log_probs, target_entropy=target_entropy
        ),
    }


def next_values(nets: RLPDAlgorithm, obs: Tensor, noise: Noise, config: RLPDConfig) -> Tensor:
    actions, log_probs = nets.actor.draw(obs, noise["next"])
    values: Tensor = nets.target_critic(obs, actions, noise["subset"]).amin(0)
    return values - nets.temperature() * log_probs if config.backup_entropy else values


def critic_loss(nets: RLPDAlgorithm, batch: Batch, noise: Noise, config: RLPDConfig) -> Terms:
    with torch.no_grad():
        values = next_values(nets, batch.next_obs, noise, config)
        target_q = batch_target(batch, values, config.gamma)
    return rlpd_critic_loss(q_values=nets.critic(batch.obs, batch.actions), target_q=target_q)


@register("rlpd", regimes=("offline_to_online",))
class RLPDAlgorithm(Algorithm[RLPDConfig]):
    losses = {"critic": critic_loss, "actor": actor_loss, "temperature": temperature_loss}
    joint_updates = True
    replay = replay_options(learning_starts=5_000, gradient_updates_per_step=20)
    offline_to_online = offline_to_online_options(initial_actions="random")

    def build(self, spec: ProblemSpec, config: RLPDConfig) -> None:
        sizes, init = config.hidden_sizes, Init(xavier=True)
        self.actor = SquashedGaussianActor(spec.obs_dim, spec.action_dim, sizes, init=init)
        self.critic: Any = EnsembleMLP(
            config.num_critics,
            spec.obs_dim + spec.action_dim,
            sizes,
            layer_norm=config.critic_layer_norm,
            norm_first=True,
            init=init,
        )
        self.target_critic = target_of(self.critic)
        self.temperature = new_temperature(self)

    def update_step(self, batch: Batch) -> Terms:
        return joint_update_step(self, batch)

    def bootstrap_values(self, obs: Tensor, generator: torch.Generator) -> Tensor:
        shape = len(obs), self.spec.action_dim
        noise = {
            "next": torch.randn(shape, generator=generator, device=obs.device),
            "subset": random_subset(self, generator),
        }
        return next_values(self, obs, noise, self.config)


RLPD = RLPDAlgorithm
