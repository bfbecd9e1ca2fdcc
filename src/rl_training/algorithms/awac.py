"""AWAC: clone logged actions, weighted by how much better than the policy's own they are. Nair et al. 2020.

target  y = r + γ (1-d) min_i Q̄_i(s', a'),   a' ~ π(s')
critic  min_Q  Σ_i E[(Q_i(s,a) - y)²]
actor   max_π  E[w log π(a|s)],   A = min_i Q_i(s,a) - min_i Q_i(s, a_π),   a_π ~ π(s)
        w = min(exp(A/λ), cap)   or   softmax over the batch of A/λ, times its size

With discrete actions the draws of a' and a_π are replaced by exact expectations.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from rl_training.algorithms.argument_checks import require_choice
from rl_training.algorithms.base import ActorCriticConfig, Algorithm, Noise, Terms, target_of
from rl_training.algorithms.registry import register
from rl_training.algorithms.targets import (
    batch_target,
    critic_terms,
    imitation_terms,
    logged_q,
    policy_values,
)
from rl_training.config import option
from rl_training.data.offline_to_online_config import offline_to_online_options
from rl_training.data.replay_config import replay_options
from rl_training.data.transitions.batch import Batch
from rl_training.models import MLPImitationModel
from rl_training.spec import ProblemSpec

WeightNormalization = Literal["exp", "softmax"]


class AWACConfig(ActorCriticConfig):
    hidden_sizes: tuple[Annotated[int, Field(ge=1, le=65_536)], ...] = option(
        (256, 256, 256), "width of each hidden layer"
    )
    awac_lambda: float = option(1 / 3, "temperature λ of the weights; towards ∞ it is BC", gt=0)
    max_advantage_weight: float = option(100.0, "upper bound of exp weights", gt=0)
    weight_normalization: WeightNormalization = option(
        "exp", "capped exponential, or softmax over the batch times its size"
    )
    actor_weight_decay: float = option(0.0, "L2 penalty in the actor's Adam", ge=0)


def awac_critic_loss(*, q_values: Tensor, target_q: Tensor) -> Terms:
    """q_values (critics, batch), target_q (batch,)."""
    return critic_terms(q_values, target_q)


def awac_actor_loss(
    *,
    log_probs: Tensor,
    advantages: Tensor,
    awac_lambda: float,
    max_advantage_weight: float,
    weight_normalization: WeightNormalization,
) -> Terms:
    """log_probs and advantages (batch,), of the logged actions."""
    require_choice("weight_normalization", weight_normalization, WeightNormalization)
    scaled = advantages.detach() / awac_lambda
    if weight_normalization == "softmax":
        weights = scaled.softmax(-1) * scaled.shape[-1]
    else:
        weights = scaled.exp().clamp_max(max_advantage_weight)
    return imitation_terms(log_probs, advantages, weights, max_weight=max_advantage_weight)


def awac_loss(*, q_values: Tensor, target_q: Tensor, **actor: Any) -> Terms:
    """Both halves in one dict; `actor` holds the arguments of `awac_actor_loss`."""
    return {
        **awac_critic_loss(q_values=q_values, target_q=target_q),
        **awac_actor_loss(**actor),
    }


def critic_loss(nets: AWACAlgorithm, batch: Batch, noise: Noise, config: AWACConfig) -> Terms:
    with torch.no_grad():
        next_q = policy_values(nets.actor, nets.target_critic, batch.next_obs, noise["next"])
        target_q = batch_target(batch, next_q, config.gamma)
    return awac_critic_loss(q_values=logged_q(nets.critic, batch), target_q=target_q)


def actor_loss(nets: AWACAlgorithm, batch: Batch, noise: Noise, config: AWACConfig) -> Terms:
    with torch.no_grad():
        values = policy_values(nets.actor, nets.critic, batch.obs, noise["policy"])
        advantages = logged_q(nets.critic, batch).amin(0) - values
    return awac_actor_loss(
        log_probs=nets.actor.log_prob(batch.obs, batch.actions),
        advantages=advantages,
        awac_lambda=config.awac_lambda,
        max_advantage_weight=config.max_advantage_weight,
        weight_normalization=config.weight_normalization,
    )


@register("awac", regimes=("offline", "offline_to_online"), action_kinds=("continuous", "discrete"))
class AWACAlgorithm(Algorithm[AWACConfig]):
    losses = {"critic": critic_loss, "actor": actor_loss}
    replay = replay_options(learning_starts=0)
    offline_to_online = offline_to_online_options(offline_batch_ratio="pooled")
    normalizes_observations = True
    remedies = {"weights": "raise awac_lambda", "policy": "raise awac_lambda"}

    def build(self, spec: ProblemSpec, config: AWACConfig) -> None:
        model = MLPImitationModel(
            spec, config.hidden_sizes, log_std_bounds=(-6.0, 0.0), sigmoid_std=True
        )
        self.actor, self.critic = model.actor, model.critic
        self.target_critic = target_of(self.critic)

    def build_optimizer(self, name: str) -> torch.optim.Optimizer:
        optimizer = super().build_optimizer(name)
        if name == "actor":
            optimizer.param_groups[0]["weight_decay"] = self.config.actor_weight_decay
        return optimizer

    def update_step(self, batch: Batch) -> Terms:
        # discrete losses leave the noise alone
        noise = {name: self.standard_normal(batch.actions) for name in ("next", "policy")}
        terms = self.minimize("critic", batch, noise)
        terms |= self.minimize("actor", batch, noise)
        self.track_targets(self.config.tau)
        return terms


AWAC = AWACAlgorithm
