"""SAC: soft actor-critic with a learned temperature. Haarnoja et al. 2018; discrete 2019.

critic       min_Q  Σ_i E[(Q_i(s,a) - y)²]
             y = r + γ (1-d) (min_i Q̄_i(s',a') - α log π(a'|s')),   a' ~ π(·|s')
actor        min_π  E[α log π(a|s) - min_i Q_i(s,a)],   a ~ π(·|s)
temperature  min_α  -E[log α (log π(a|s) + H)]

With discrete actions (Christodoulou 2019) draws are replaced by expectations over all choices.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rl_training.algorithms.base import Algorithm, Noise, Terms, target_of
from rl_training.algorithms.registry import register
from rl_training.algorithms.soft import (
    SoftConfig,
    new_temperature,
    policy_step,
    temperature_loss,
)
from rl_training.algorithms.targets import (
    batch_target,
    critic_terms,
    logged_q,
    soft_actor_terms,
    temperature_terms,
)
from rl_training.data.transitions.batch import Batch
from rl_training.models import CategoricalActor, EnsembleMLP, MLPSACModel
from rl_training.spec import ProblemSpec


class SACConfig(SoftConfig):
    """All of its options are those that its descendants share."""


def sac_critic_loss(*, q_values: Tensor, target_q: Tensor) -> Terms:
    """q_values (critics, batch), target_q (batch,)."""
    return critic_terms(q_values, target_q)


def sac_actor_loss(
    *, q_values: Tensor, log_probs: Tensor, alpha: Tensor, probabilities: Tensor | None = None
) -> Terms:
    """q_values (critics, batch) and log_probs (batch,) at the policy's own actions.

    With `probabilities` (batch, choices) the other two hold every choice in the same last axis.
    """
    values = q_values.amin(0)
    if probabilities is not None:
        values, log_probs = (probabilities * values).sum(-1), (probabilities * log_probs).sum(-1)
    return soft_actor_terms(values=values, log_probs=log_probs, alpha=alpha)


sac_temperature_loss = temperature_terms


def sac_loss(
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
        **sac_critic_loss(q_values=q_values, target_q=target_q),
        **sac_actor_loss(q_values=policy_q_values, log_probs=log_probs, alpha=alpha),
        **sac_temperature_loss(
            log_alpha=log_alpha, log_probs=log_probs, target_entropy=target_entropy
        ),
    }


def soft_values(nets: SACAlgorithm, obs: Tensor, noise: Noise) -> Tensor:
    """V(s) = E[min_i Q̄_i(s,a) - α log π(a|s)], (batch,); for continuous actions from one draw."""
    if nets.spec.action_kind == "discrete":
        log_probs = nets.actor(obs)
        values = nets.target_critic(obs).amin(0) - nets.temperature() * log_probs
        return (log_probs.exp() * values).sum(-1)
    actions, log_probs = nets.actor.draw(obs, noise["next"])
    next_q = nets.target_critic(obs, actions).amin(0)
    return next_q - nets.temperature() * log_probs


def critic_loss(nets: SACAlgorithm, batch: Batch, noise: Noise, config: SACConfig) -> Terms:
    with torch.no_grad():
        target_q = batch_target(batch, soft_values(nets, batch.next_obs, noise), config.gamma)
    return sac_critic_loss(q_values=logged_q(nets.critic, batch), target_q=target_q)


def actor_loss(nets: SACAlgorithm, batch: Batch, noise: Noise, config: SACConfig) -> Terms:
    if nets.spec.action_kind == "discrete":
        log_probs = nets.actor(batch.obs)
        with torch.no_grad():
            q_values = nets.critic(batch.obs)
        return sac_actor_loss(
            q_values=q_values,
            log_probs=log_probs,
            alpha=nets.temperature(),
            probabilities=log_probs.exp(),
        )
    actions, log_probs = nets.actor.draw(batch.obs, noise["policy"])
    q_values = nets.critic(batch.obs, actions)
    return sac_actor_loss(q_values=q_values, log_probs=log_probs, alpha=nets.temperature())


@register("sac", regimes=("online",), action_kinds=("continuous", "discrete"))
class SACAlgorithm(Algorithm[SACConfig]):
    losses = {"critic": critic_loss, "actor": actor_loss, "temperature": temperature_loss}

    def build(self, spec: ProblemSpec, config: SACConfig) -> None:
        sizes = config.hidden_sizes
        if spec.action_kind == "discrete":
            self.actor = CategoricalActor(spec.obs_dim, spec.action_dim, sizes)
            self.critic = EnsembleMLP(2, spec.obs_dim, sizes, spec.action_dim)
        else:
            model = MLPSACModel(spec.obs_dim, spec.action_dim, sizes)
            self.actor, self.critic = model.actor, model.critic
        self.target_critic = target_of(self.critic)
        self.temperature = new_temperature(self)

    def update_step(self, batch: Batch) -> Terms:
        noise: Noise = {}
        if self.spec.action_kind == "continuous":
            noise = {name: self.standard_normal(batch.actions) for name in ("next", "policy")}
        terms = self.minimize("critic", batch, noise) | policy_step(self, batch, noise)
        self.track_targets(self.config.tau)
        return terms


SAC = SACAlgorithm
