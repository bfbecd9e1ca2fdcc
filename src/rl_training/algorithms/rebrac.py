"""ReBRAC: TD3 with separate behaviour terms in actor and critic. Tarasov et al. 2023.

target  y = r + γ (1-d) (min_i Q̄_i(s', ã) - β_c |ã - a'|²),   ã = clip(π̄(s') + clip(ε σ, ±c), ±1)
        a' being the action that the data took in s'
critic  min_Q  Σ_i E[(Q_i(s,a) - y)²]
actor   min_π  E[β_a |π(s) - a|² - w λ min_i Q_i(s,π(s))],   λ = 1 / E|min_i Q_i(s,π(s))|
        every `policy_delay` steps; |·|² sums over action dimensions

The critics normalise every hidden layer (LayerNorm after ReLU). Once it collects, β_c is 0, and β_a
falls with the steps to half of its value.
"""

from __future__ import annotations

from typing import Annotated, Any

import torch
from pydantic import Field
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
from rl_training.config import DatasetError, option
from rl_training.data.replay_config import replay_options
from rl_training.data.transitions.batch import Batch
from rl_training.models import DeterministicActor, EnsembleMLP, Init
from rl_training.spec import ProblemSpec


class ReBRACConfig(DelayedConfig):
    exploration_noise: float = option(
        0.0, "standard deviation of the noise on collected actions, in units of their range", ge=0
    )
    batch_size: int = option(1024, "transitions per gradient update", ge=1, le=10_000_000)
    learning_rate: float = option(1e-3, "Adam's learning rate", gt=0)
    hidden_sizes: tuple[Annotated[int, Field(ge=1, le=65_536)], ...] = option(
        (256, 256, 256), "width of each hidden layer"
    )
    actor_bc_weight: float = option(0.01, "weight β_a of the actor's distance to the data", ge=0)
    critic_bc_weight: float = option(
        0.01, "weight β_c of the penalty in the target; above 0 it needs next actions", ge=0
    )
    actor_q_weight: float = option(1.0, "weight w of the value in the actor's loss", ge=0)
    normalize_q: bool = option(True, "divide that value by its mean size in the batch")
    critic_layer_norm: bool = option(True, "normalise the critics' hidden layers")


def squared_distance(first: Tensor, second: Tensor) -> Tensor:
    """Summed over action dimensions, (batch,): a mean would weaken the papers' weights."""
    return (first - second).square().sum(-1)


def rebrac_critic_loss(*, q_values: Tensor, target_q: Tensor) -> Terms:
    """q_values (critics, batch), target_q (batch,)."""
    return critic_terms(q_values, target_q)


def rebrac_actor_loss(
    *,
    q_values: Tensor,
    policy_actions: Tensor,
    actions: Tensor,
    actor_bc_weight: float | Tensor,
    actor_q_weight: float = 1.0,
    normalize_q: bool = True,
) -> Terms:
    """q_values (batch,): the smallest critic at the policy's actions."""
    require_rows(q_values=q_values)
    require_same_shape(policy_actions=policy_actions, actions=actions)
    # the floor only guards the first update of a critic that is zero everywhere
    size = q_values.detach().abs().mean(-1).clamp_min(1e-8)
    scale = 1 / size if normalize_q else torch.ones_like(size)
    bc = squared_distance(policy_actions, actions).mean(-1)
    policy_q = q_values.mean(-1)
    return {
        "actor_loss": actor_bc_weight * bc - actor_q_weight * scale * policy_q,
        "bc_loss": bc,
        "action_distance": bc.detach() / actions.shape[-1],
        "policy_q_mean": policy_q,
        "q_scale": scale,
    }


def rebrac_loss(
    *, q_values: Tensor, target_q: Tensor, policy_q_values: Tensor, **actor: Any
) -> Terms:
    """Both halves in one dict; `actor` holds the other arguments of `rebrac_actor_loss`."""
    return {
        **rebrac_critic_loss(q_values=q_values, target_q=target_q),
        **rebrac_actor_loss(q_values=policy_q_values, **actor),
    }


def critic_loss(
    nets: ReBRACAlgorithm,
    batch: Batch,
    noise: Noise,
    config: ReBRACConfig,
    shared: Terms | None = None,
) -> Terms:
    with torch.no_grad():
        policy_actions = smoothed_next_actions(nets, batch, noise, config)
        next_q = least_target_q(nets, batch, policy_actions)
        penalty = torch.zeros_like(next_q)
        if config.critic_bc_weight > 0 and shared is None:  # offline
            penalty = squared_distance(policy_actions, require_next_actions(batch))
        target_q = batch_target(batch, next_q - config.critic_bc_weight * penalty, config.gamma)
    terms = rebrac_critic_loss(q_values=nets.critic(batch.obs, batch.actions), target_q=target_q)
    return {**terms, "next_bc_loss": ((1 - batch.terminations) * penalty).mean()}


def require_next_actions(batch: Batch) -> Tensor:
    """Nothing can stand in for them: the policy's own actions would make the penalty 0."""
    if batch.next_actions is None:
        raise DatasetError(
            "the batch has no next actions, which ReBRAC's critic_bc_weight > 0 needs: sample from "
            "dataset.with_valid_next_actions(), or set critic_bc_weight: 0"
        )
    return batch.next_actions


def actor_loss(
    nets: ReBRACAlgorithm,
    batch: Batch,
    noise: Noise,
    config: ReBRACConfig,
    shared: Terms | None = None,
) -> Terms:
    policy_actions = nets.actor(batch.obs)
    bc_weight = config.actor_bc_weight if shared is None else shared["actor_bc_weight"]
    return rebrac_actor_loss(
        q_values=nets.critic(batch.obs, policy_actions).amin(0),
        policy_actions=policy_actions,
        actions=batch.actions,
        actor_bc_weight=bc_weight,
        actor_q_weight=config.actor_q_weight,
        normalize_q=config.normalize_q,
    )


@register("rebrac", regimes=("offline", "offline_to_online"))
class ReBRACAlgorithm(Algorithm[ReBRACConfig]):
    losses = {"critic": critic_loss, "actor": actor_loss}
    replay = replay_options(learning_starts=0)
    normalizes_observations = True
    remedies = dict.fromkeys(("values", "policy"), "raise actor_bc_weight and critic_bc_weight")
    explore = explore_with_noise

    @classmethod
    def needs_next_actions(cls, config: Any) -> bool:
        return bool(config.critic_bc_weight > 0)

    def build(self, spec: ProblemSpec, config: ReBRACConfig) -> None:
        sizes = config.hidden_sizes
        self.actor = DeterministicActor(
            spec.obs_dim, spec.action_dim, sizes, Init(hidden_bias=0.1, last_bound=1e-3)
        )
        self.critic = EnsembleMLP(
            2,
            spec.obs_dim + spec.action_dim,
            sizes,
            layer_norm=config.critic_layer_norm,
            init=Init(hidden_bias=0.1, last_bound=3e-3),
        )
        self.target_actor, self.target_critic = target_of(self.actor), target_of(self.critic)

    def update_step(self, batch: Batch) -> Terms:
        if self.online_progress is None:
            return delayed_update_step(self, batch)
        weight = max(0.5, 1 - self.online_progress) * self.config.actor_bc_weight
        shared = {"actor_bc_weight": torch.tensor(weight, device=self.device)}
        return delayed_update_step(self, batch, shared)


ReBRAC = ReBRACAlgorithm
