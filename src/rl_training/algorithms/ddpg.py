"""DDPG: deep deterministic policy gradient. Lillicrap et al. 2016.

critic  min_Q  E[(Q(s,a) - y)²],   y = r + γ (1-d) Q̄(s', π̄(s'))
actor   max_π  E[Q(s, π(s))]
"""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from rl_training.algorithms.base import ActorCriticConfig, Algorithm, Noise, Terms, target_of
from rl_training.algorithms.delayed import explore_with_noise, least_target_q
from rl_training.algorithms.registry import register
from rl_training.algorithms.targets import batch_target, critic_terms, policy_gradient_terms
from rl_training.config import option
from rl_training.data.transitions.batch import Batch
from rl_training.models import MLPTD3Model
from rl_training.spec import ProblemSpec


class DDPGConfig(ActorCriticConfig):
    batch_size: int = option(64, "transitions per gradient update", ge=1, le=10_000_000)
    hidden_sizes: tuple[Annotated[int, Field(ge=1, le=65_536)], ...] = option(
        (400, 300), "width of each hidden layer"
    )
    learning_rate: float = option(1e-3, "Adam's learning rate", gt=0)
    actor_learning_rate: float | None = option(1e-4, "the actor's own rate", gt=0)
    tau: float = option(0.001, "share of the online network in each target update", gt=0, le=1)
    exploration_noise: float = option(
        0.1, "standard deviation of the noise on collected actions, in units of their range", ge=0
    )


def ddpg_critic_loss(*, q_values: Tensor, target_q: Tensor) -> Terms:
    """q_values (1, batch), target_q (batch,)."""
    return critic_terms(q_values, target_q)


def ddpg_actor_loss(*, q_values: Tensor) -> Terms:
    """q_values (batch,): the critic at the policy's actions."""
    return policy_gradient_terms(q_values)


def ddpg_loss(*, q_values: Tensor, target_q: Tensor, policy_q_values: Tensor) -> Terms:
    """Both halves in one dict."""
    return {
        **ddpg_critic_loss(q_values=q_values, target_q=target_q),
        **ddpg_actor_loss(q_values=policy_q_values),
    }


def critic_loss(nets: DDPGAlgorithm, batch: Batch, noise: Noise, config: DDPGConfig) -> Terms:
    with torch.no_grad():
        next_q = least_target_q(nets, batch, nets.target_actor(batch.next_obs))
        target_q = batch_target(batch, next_q, config.gamma)
    return ddpg_critic_loss(q_values=nets.critic(batch.obs, batch.actions), target_q=target_q)


def actor_loss(nets: DDPGAlgorithm, batch: Batch, noise: Noise, config: DDPGConfig) -> Terms:
    actions = nets.actor(batch.obs)
    return ddpg_actor_loss(q_values=nets.critic(batch.obs, actions, members=0))


@register("ddpg", regimes=("online",))
class DDPGAlgorithm(Algorithm[DDPGConfig]):
    losses = {"critic": critic_loss, "actor": actor_loss}
    explore = explore_with_noise

    def build(self, spec: ProblemSpec, config: DDPGConfig) -> None:
        model = MLPTD3Model(spec.obs_dim, spec.action_dim, config.hidden_sizes, num_critics=1)
        self.actor, self.critic = model.actor, model.critic
        self.target_actor, self.target_critic = target_of(model.actor), target_of(model.critic)

    def update_step(self, batch: Batch) -> Terms:
        terms = self.minimize("critic", batch) | self.minimize("actor", batch)
        self.track_targets(self.config.tau)
        return terms


DDPG = DDPGAlgorithm
