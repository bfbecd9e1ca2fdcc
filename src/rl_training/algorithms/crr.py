"""CRR: clone the logged actions that the critic prefers to the policy's own. Wang et al. 2020.

target  y = r + γ (1-d) min_i Q̄_i(s', a'),   a' ~ π̄(s'): the target policy
critic  min_Q  Σ_i E[(Q_i(s,a) - y)²]
actor   max_π  E[f(A) log π(a|s)],   A = Q(s,a) - mean_j or max_j Q(s,a_j),   a_j ~ π(s)
        Q = min_i Q_i;   f = 1[A > 0]  or  min(exp(A/β), cap)
targets copied every `target_update_interval` updates, or averaged

With discrete actions draws are replaced by what they estimate: expectation or maximum over choices.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from rl_training.algorithms.argument_checks import require_choice, require_rows, require_same_shape
from rl_training.algorithms.base import ActorCriticConfig, Algorithm, Noise, Terms, target_of
from rl_training.algorithms.registry import register
from rl_training.algorithms.targets import (
    batch_target,
    critic_terms,
    imitation_terms,
    logged_and_own_q,
    logged_q,
    policy_values,
)
from rl_training.config import option
from rl_training.data.offline_to_online_config import offline_to_online_options
from rl_training.data.replay_config import replay_options
from rl_training.data.transitions.batch import Batch
from rl_training.models import (
    MLPImitationModel,
    critic_weighted_choices,
    critic_weighted_sample,
)
from rl_training.models.numpy_forward import NumpyFunction
from rl_training.spec import ProblemSpec

AdvantageType = Literal["mean", "max"]
WeightType = Literal["exp", "binary"]


class CRRConfig(ActorCriticConfig):
    advantage_type: AdvantageType = option(
        "mean", "compare with the mean or the best of the policy's own actions"
    )
    weight_type: WeightType = option(
        "exp", "weight by the capped exponential, or clone only what is better"
    )
    beta: float = option(1.0, "temperature β of exp weights", gt=0)
    n_action_samples: int = option(4, "draws of the policy per state", ge=1)
    max_weight: float = option(20.0, "upper bound of exp weights", gt=0)
    num_critics: int = option(2, "critics, of which the smallest value counts", ge=1)
    target_update: Literal["hard", "soft"] = option(
        "hard", "copy the networks every so often, or average with `tau` at every update"
    )
    target_update_interval: int = option(100, "updates between hard copies", ge=1)
    critic_weighted_policy: bool = option(
        False, "act by drawing actions and choosing one with probability softmax(Q)"
    )


def crr_critic_loss(*, q_values: Tensor, target_q: Tensor) -> Terms:
    """q_values (critics, batch), target_q (batch,)."""
    return critic_terms(q_values, target_q)


def crr_actor_loss(
    *,
    log_probs: Tensor,
    q_values: Tensor,
    q_samples: Tensor,
    probabilities: Tensor | None = None,
    advantage_type: AdvantageType,
    weight_type: WeightType,
    beta: float,
    max_weight: float,
) -> Terms:
    """Logged actions' log_probs and q_values (batch,), the policy's q_samples (batch, samples).

    `probabilities`, like q_samples, are given where these are all choices instead of draws.
    """
    require_choice("advantage_type", advantage_type, AdvantageType)
    require_choice("weight_type", weight_type, WeightType)
    require_same_shape(q_samples=q_samples, probabilities=probabilities)
    if advantage_type == "max":
        values = q_samples.amax(-1)
    elif probabilities is None:
        values = q_samples.mean(-1)
    else:
        values = (probabilities * q_samples).sum(-1)
    require_rows(log_probs=log_probs, q_values=q_values, values=values)
    advantages = (q_values - values).detach()
    if weight_type == "binary":
        weights = (advantages > 0).to(advantages.dtype)
    else:
        weights = (advantages / beta).exp().clamp_max(max_weight)
    bound = max_weight if weight_type == "exp" else None
    return {
        **imitation_terms(log_probs, advantages, weights, max_weight=bound),
        "advantage_positive": (advantages > 0).float().mean(-1),
    }


def crr_loss(*, q_values: Tensor, target_q: Tensor, **actor: Any) -> Terms:
    """Both halves for one q_values (critics, batch); `actor` is for `crr_actor_loss`."""
    return {
        **crr_critic_loss(q_values=q_values, target_q=target_q),
        **crr_actor_loss(q_values=q_values.amin(0), **actor),
    }


def critic_loss(nets: CRRAlgorithm, batch: Batch, noise: Noise, config: CRRConfig) -> Terms:
    with torch.no_grad():
        next_q = policy_values(nets.target_actor, nets.target_critic, batch.next_obs, noise["next"])
        target_q = batch_target(batch, next_q, config.gamma)
    return crr_critic_loss(q_values=logged_q(nets.critic, batch), target_q=target_q)


def actor_loss(nets: CRRAlgorithm, batch: Batch, noise: Noise, config: CRRConfig) -> Terms:
    with torch.no_grad():
        q_values, q_samples, probabilities = logged_and_own_q(
            nets.actor, nets.critic, batch, noise["samples"]
        )
    return crr_actor_loss(
        log_probs=nets.actor.log_prob(batch.obs, batch.actions),
        q_values=q_values,
        q_samples=q_samples,
        probabilities=probabilities,
        advantage_type=config.advantage_type,
        weight_type=config.weight_type,
        beta=config.beta,
        max_weight=config.max_weight,
    )


@register("crr", regimes=("offline", "offline_to_online"), action_kinds=("continuous", "discrete"))
class CRRAlgorithm(Algorithm[CRRConfig]):
    losses = {"critic": critic_loss, "actor": actor_loss}
    replay = replay_options(learning_starts=0)
    offline_to_online = offline_to_online_options(offline_batch_ratio="pooled")
    normalizes_observations = True
    remedies = {"weights": "raise beta", "policy": "raise beta"}
    continuous_options = frozenset({"n_action_samples"})

    def build(self, spec: ProblemSpec, config: CRRConfig) -> None:
        model = MLPImitationModel(
            spec,
            config.hidden_sizes,
            config.num_critics,
            log_std_bounds=(-20.0, 2.0),
            state_dependent_std=True,
        )
        self.actor, self.critic = model.actor, model.critic
        self.target_actor, self.target_critic = target_of(self.actor), target_of(self.critic)

    def update_step(self, batch: Batch) -> Terms:
        many = batch.actions.expand(self.config.n_action_samples, *batch.actions.shape)
        # discrete losses leave the noise alone
        noise = {"next": self.standard_normal(batch.actions), "samples": self.standard_normal(many)}
        terms = self.minimize("critic", batch, noise)
        terms |= self.minimize("actor", batch, noise)
        if self.config.target_update == "soft":
            self.track_targets(self.config.tau)
        elif self.update_count % self.config.target_update_interval == 0:  # the first update too
            self.track_targets(1.0)
        return terms

    @torch.no_grad()
    def act(
        self, obs: Tensor, *, explore: bool = False, generator: torch.Generator | None = None
    ) -> Tensor:
        """The mode; with `critic_weighted_policy`, one of several draws, chosen by softmax(Q)."""
        if explore or not self.config.critic_weighted_policy:
            return super().act(obs, explore=explore, generator=generator)
        samples, generator = self.config.n_action_samples, generator or self.generator
        return critic_weighted_sample(self.actor, self.critic, obs, samples, generator)

    @property
    def draws_without_exploring(self) -> bool:
        return self.config.critic_weighted_policy

    @torch.no_grad()
    def choice_probabilities(self, obs: Tensor, *, explore: bool = False) -> Tensor:
        if explore or not self.config.critic_weighted_policy:
            return super().choice_probabilities(obs, explore=explore)
        return critic_weighted_choices(self.actor, self.critic, obs)

    def numpy_policy(self) -> NumpyFunction | None:
        return None if self.config.critic_weighted_policy else super().numpy_policy()


CRR = CRRAlgorithm
