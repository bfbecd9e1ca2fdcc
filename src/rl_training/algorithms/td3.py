"""TD3: twin delayed deep deterministic policy gradient. Fujimoto et al. 2018.

critic  min_Q  Σ_i E[(Q_i(s,a) - y)²]
        y = r + γ (1-d) min_i Q̄_i(s', ã),   ã = clip(π̄(s') + clip(ε σ, ±c), ±1)
actor   max_π  E[Q_1(s, π(s))],   every `policy_delay` steps, with the targets
"""

from __future__ import annotations

import torch
from torch import Tensor

from rl_training.algorithms.base import Algorithm, Noise, Terms, target_of
from rl_training.algorithms.delayed import (
    DelayedConfig,
    delayed_update_step,
    explore_with_noise,
    least_target_q,
    smoothed_next_actions,
)
from rl_training.algorithms.registry import register
from rl_training.algorithms.targets import batch_target, critic_terms, policy_gradient_terms
from rl_training.data.replay_config import replay_options
from rl_training.data.transitions.batch import Batch
from rl_training.models import MLPTD3Model
from rl_training.spec import ProblemSpec


class TD3Config(DelayedConfig):
    """All of its options are those that its descendants share."""


def td3_critic_loss(*, q_values: Tensor, target_q: Tensor) -> Terms:
    """q_values (critics, batch), target_q (batch,)."""
    return critic_terms(q_values, target_q)


def td3_actor_loss(*, q_values: Tensor) -> Terms:
    """q_values (batch,): the first critic at the policy's actions."""
    return policy_gradient_terms(q_values)


def td3_loss(*, q_values: Tensor, target_q: Tensor, policy_q_values: Tensor) -> Terms:
    """Both halves in one dict."""
    return {
        **td3_critic_loss(q_values=q_values, target_q=target_q),
        **td3_actor_loss(q_values=policy_q_values),
    }


def critic_loss(nets: TD3Algorithm, batch: Batch, noise: Noise, config: TD3Config) -> Terms:
    with torch.no_grad():
        next_actions = smoothed_next_actions(nets, batch, noise, config)
        target_q = batch_target(batch, least_target_q(nets, batch, next_actions), config.gamma)
    return td3_critic_loss(q_values=nets.critic(batch.obs, batch.actions), target_q=target_q)


def actor_loss(nets: TD3Algorithm, batch: Batch, noise: Noise, config: TD3Config) -> Terms:
    actions = nets.actor(batch.obs)
    return td3_actor_loss(q_values=nets.critic(batch.obs, actions, members=0))


@register("td3", regimes=("online",))
class TD3Algorithm(Algorithm[TD3Config]):
    losses = {"critic": critic_loss, "actor": actor_loss}
    replay = replay_options(learning_starts=25_000)
    update_step, explore = delayed_update_step, explore_with_noise

    def build(self, spec: ProblemSpec, config: TD3Config) -> None:
        model = MLPTD3Model(spec.obs_dim, spec.action_dim, config.hidden_sizes)
        self.actor, self.critic = model.actor, model.critic
        self.target_actor, self.target_critic = target_of(model.actor), target_of(model.critic)


TD3 = TD3Algorithm
