"""IQL: values by expectile regression, policy by weighted imitation. Kostrikov et al. 2021.

value   min_V  E[|η - 1(u<0)| u²],   u = min_i Q̄_i(s,a) - V(s)
actor   min_π  -E[w log π(a|s)],     w = min(exp(β (min_i Q̄_i(s,a) - V(s))), w_max)
critic  min_Q  Σ_i E[(Q_i(s,a) - y)²],   y = r + γ (1-d) V(s')

No action is ever evaluated that the data does not hold. The order is the authors': actor and
critics see the V of this very update, and V has no target network.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rl_training.algorithms.argument_checks import require_rows
from rl_training.algorithms.base import ActorCriticConfig, Algorithm, Noise, Terms, target_of
from rl_training.algorithms.registry import register
from rl_training.algorithms.targets import batch_target, critic_terms, imitation_terms, logged_q
from rl_training.config import option
from rl_training.data.offline_to_online_config import offline_to_online_options
from rl_training.data.replay_config import replay_options
from rl_training.data.transitions.batch import Batch
from rl_training.models import MLP, Init, MLPImitationModel
from rl_training.spec import ProblemSpec


class IQLConfig(ActorCriticConfig):
    value_learning_rate: float | None = option(
        None, "the state value's own rate; null = learning_rate", gt=0
    )
    expectile: float = option(0.7, "expectile η of the state value; 0.5 is the mean", gt=0, lt=1)
    beta: float = option(3.0, "inverse temperature β of the advantage weights", gt=0)
    max_advantage_weight: float = option(100.0, "upper bound of these weights", gt=0)


def iql_value_loss(*, min_q: Tensor, values: Tensor, expectile: float) -> Terms:
    """min_q (batch,): the least target critic at logged actions; values (batch,)."""
    require_rows(min_q=min_q, values=values)
    error = min_q.detach() - values
    weight = torch.where(error < 0, 1 - expectile, expectile)
    return {"value_loss": (weight * error.square()).mean(-1), "value_mean": values.mean(-1)}


def iql_actor_loss(
    *, log_probs: Tensor, advantages: Tensor, beta: float, max_advantage_weight: float
) -> Terms:
    """Both tensors (batch,), at logged actions."""
    # the bound comes after exp, which may be infinite
    weights = (beta * advantages.detach()).exp().clamp(max=max_advantage_weight)
    return imitation_terms(log_probs, advantages, weights, max_weight=max_advantage_weight)


def iql_critic_loss(*, q_values: Tensor, target_q: Tensor) -> Terms:
    """q_values (critics, batch), target_q (batch,)."""
    return critic_terms(q_values, target_q)


def iql_loss(
    *,
    min_q: Tensor,
    values: Tensor,
    log_probs: Tensor,
    q_values: Tensor,
    target_q: Tensor,
    expectile: float,
    beta: float,
    max_advantage_weight: float,
) -> Terms:
    """All three parts in one dict, for one and the same V."""
    weighting = {"beta": beta, "max_advantage_weight": max_advantage_weight}
    return {
        **iql_value_loss(min_q=min_q, values=values, expectile=expectile),
        **iql_actor_loss(log_probs=log_probs, advantages=min_q - values, **weighting),
        **iql_critic_loss(q_values=q_values, target_q=target_q),
    }


def least_target_q(nets: IQLAlgorithm, batch: Batch, noise: Noise, config: IQLConfig) -> Terms:
    """min_i Q̄_i(s,a), for the value and the actor."""
    return {"min_q": logged_q(nets.target_critic, batch).amin(0)}


def value_loss(
    nets: IQLAlgorithm, batch: Batch, noise: Noise, config: IQLConfig, shared: Terms
) -> Terms:
    values = nets.value(batch.obs).squeeze(-1)
    return iql_value_loss(min_q=shared["min_q"], values=values, expectile=config.expectile)


def actor_loss(
    nets: IQLAlgorithm, batch: Batch, noise: Noise, config: IQLConfig, shared: Terms
) -> Terms:
    with torch.no_grad():
        advantages = shared["min_q"] - nets.value(batch.obs).squeeze(-1)
    return iql_actor_loss(
        log_probs=nets.actor.log_prob(batch.obs, batch.actions),
        advantages=advantages,
        beta=config.beta,
        max_advantage_weight=config.max_advantage_weight,
    )


def critic_loss(nets: IQLAlgorithm, batch: Batch, noise: Noise, config: IQLConfig) -> Terms:
    with torch.no_grad():
        next_values = nets.value(batch.next_obs).squeeze(-1)
        target_q = batch_target(batch, next_values, config.gamma)
    return iql_critic_loss(q_values=logged_q(nets.critic, batch), target_q=target_q)


@register("iql", regimes=("offline", "offline_to_online"), action_kinds=("continuous", "discrete"))
class IQLAlgorithm(Algorithm[IQLConfig]):
    losses = {"value": value_loss, "actor": actor_loss, "critic": critic_loss}
    replay = replay_options(learning_starts=0)
    offline_to_online = offline_to_online_options(offline_batch_ratio="pooled")
    normalizes_observations = True
    remedies = {"weights": "lower beta", "policy": "lower beta"}
    schedules = {"actor": "cosine"}

    def build(self, spec: ProblemSpec, config: IQLConfig) -> None:
        init = Init(orthogonal=True)
        self.value = MLP(spec.obs_dim, config.hidden_sizes, 1, init)
        model = MLPImitationModel(spec, config.hidden_sizes, init=init)
        self.actor, self.critic = model.actor, model.critic
        self.target_critic = target_of(self.critic)

    def update_step(self, batch: Batch) -> Terms:
        shared = self.evaluate(least_target_q, batch)
        terms = self.minimize("value", batch, shared=shared)
        terms |= self.minimize("actor", batch, shared=shared)
        terms |= self.minimize("critic", batch)
        self.track_targets(self.config.tau)
        return terms

    def bootstrap_values(self, obs: Tensor, generator: torch.Generator) -> Tensor:
        """V(s), which needs no action."""
        del generator
        return self.value(obs).squeeze(-1)


IQL = IQLAlgorithm
