"""TD3+BC: TD3 with a behaviour-cloning term in the actor. Fujimoto & Gu 2021.

target  y = r + γ (1-d) min_i Q̄_i(s', ã),   ã = clip(π̄(s') + clip(ε σ, ±c), ±1)
critic  min_Q  Σ_i E[(Q_i(s,a) - y)²]
actor   max_π  E[λ Q_1(s,π(s)) - (π(s) - a)²],   λ = α / E|Q_1(s,π(s))|   every `policy_delay` steps
"""

from __future__ import annotations

import torch
from torch import Tensor

from rl_training.algorithms.argument_checks import require_rows, require_same_shape
from rl_training.algorithms.base import Algorithm, Noise, Terms, target_of
from rl_training.algorithms.delayed import (
    DelayedConfig,
    delayed_update_step,
    explore_with_noise,
    least_target_q,
    smoothed_next_actions,
)
from rl_training.algorithms.registry import register
from rl_training.algorithms.targets import batch_target, critic_terms
from rl_training.config import option
from rl_training.data.offline_to_online_config import offline_to_online_options
from rl_training.data.replay_config import replay_options
from rl_training.data.transitions.batch import Batch
from rl_training.models import MLPTD3Model
from rl_training.spec import ProblemSpec


class TD3BCConfig(DelayedConfig):
    bc_alpha: float = option(2.5, "weight α of the normalised Q against the BC term", ge=0)


def td3_bc_critic_loss(*, q_values: Tensor, target_q: Tensor) -> Terms:
    """q_values (critics, batch), target_q (batch,)."""
    return critic_terms(q_values, target_q)


def td3_bc_actor_loss(
    *, q_values: Tensor, policy_actions: Tensor, actions: Tensor, bc_alpha: float
) -> Terms:
    """q_values (batch,): the first critic at the policy's actions."""
    require_rows(q_values=q_values)
    require_same_shape(policy_actions=policy_actions, actions=actions)
    # the floor only guards the first update of a critic that is zero everywhere
    scale = bc_alpha / q_values.detach().abs().mean(-1).clamp_min(1e-8)
    bc = (policy_actions - actions).square().mean((-2, -1))
    policy_q = q_values.mean(-1)
    return {
        "actor_loss": bc - scale * policy_q,
        "bc_loss": bc,
        "action_distance": bc.detach(),
        "policy_q_mean": policy_q,
        "q_scale": scale,
    }


def td3_bc_loss(
    *,
    q_values: Tensor,
    target_q: Tensor,
    policy_q_values: Tensor,
    policy_actions: Tensor,
    actions: Tensor,
    bc_alpha: float,
) -> Terms:
    """Both halves in one dict."""
    return {
        **td3_bc_critic_loss(q_values=q_values, target_q=target_q),
        **td3_bc_actor_loss(
            q_values=policy_q_values,
            policy_actions=policy_actions,
            actions=actions,
            bc_alpha=bc_alpha,
        ),
    }


def critic_loss(nets: TD3BCAlgorithm, batch: Batch, noise: Noise, config: TD3BCConfig) -> Terms:
    with torch.no_grad():
        next_actions = smoothed_next_actions(nets, batch, noise, config)
        target_q = batch_target(batch, least_target_q(nets, batch, next_actions), config.gamma)
    return td3_bc_critic_loss(q_values=nets.critic(batch.obs, batch.actions), target_q=target_q)


def actor_loss(nets: TD3BCAlgorithm, batch: Batch, noise: Noise, config: TD3BCConfig) -> Terms:
    policy_actions = nets.actor(batch.obs)
    return td3_bc_actor_loss(
        q_values=nets.critic(batch.obs, policy_actions, members=0),
        policy_actions=policy_actions,
        actions=batch.actions,
        bc_alpha=config.bc_alpha,
    )


@register("td3_bc", regimes=("offline", "offline_to_online"))
class TD3BCAlgorithm(Algorithm[TD3BCConfig]):
    losses = {"critic": critic_loss, "actor": actor_loss}
    replay = replay_options(learning_starts=0)
    offline_to_online = offline_to_online_options(offline_batch_ratio="pooled")
    normalizes_observations = True
    remedies = dict.fromkeys(("values", "policy"), "lower bc_alpha")
    update_step, explore = delayed_update_step, explore_with_noise

    def build(self, spec: ProblemSpec, config: TD3BCConfig) -> None:
        model = MLPTD3Model(spec.obs_dim, spec.action_dim, config.hidden_sizes)
        self.actor, self.critic = model.actor, model.critic
        self.target_actor, self.target_critic = target_of(model.actor), target_of(model.critic)


TD3BC = TD3BCAlgorithm
