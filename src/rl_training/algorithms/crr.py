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

from rl_training.algorithms.base import ActorCriticConfig, Algorithm, Noise, Terms, target_of
from rl_training.algorithms.registry import register
from rl_training.algorithms.targets import critic_terms, logged_q, policy_values, td_target
from rl_training.config import option
from rl_training.data.batch import Batch
from rl_training.models import CategoricalActor, EnsembleMLP, GaussianActor, pick
from rl_training.models.networks import NumpyFunction
from rl_training.spec import ProblemSpec


class CRRConfig(ActorCriticConfig):
    advantage_type: Literal["mean", "max"] = option(
        "mean", "compare with the mean or the best of the policy's own actions"
    )
    weight_type: Literal["exp", "binary"] = option(
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
    advantage_type: str,
    weight_type: str,
    beta: float,
    max_weight: float,
) -> Terms:
    """Logged actions' log_probs and q_values (batch,), the policy's q_samples (batch, samples).

    `probabilities`, like q_samples, are given where these are all choices instead of draws.
    """
    if advantage_type == "max":
        values = q_samples.amax(-1)
    else:
        values = (
            q_samples.mean(-1) if probabilities is None else (probabilities * q_samples).sum(-1)
        )
    advantages = (q_values - values).detach()
    if weight_type == "binary":
        weights = (advantages > 0).to(advantages.dtype)
    else:
        weights = (advantages / beta).exp().clamp_max(max_weight)
    return {
        "actor_loss": -(weights * log_probs).mean(-1),
        "log_prob_mean": log_probs.mean(-1),
        "advantage_mean": advantages.mean(-1),
        "advantage_positive": (advantages > 0).float().mean(-1),
        "advantage_weight_mean": weights.mean(-1),
        "advantage_weight_max": weights.amax(-1),
    }


def crr_loss(*, q_values: Tensor, target_q: Tensor, **actor: Any) -> Terms:
    """Both halves for one q_values (critics, batch); `actor` is for `crr_actor_loss`."""
    return {
        **crr_critic_loss(q_values=q_values, target_q=target_q),
        **crr_actor_loss(q_values=q_values.amin(0), **actor),
    }


def critic_loss(nets: CRRAlgorithm, batch: Batch, noise: Noise, config: CRRConfig) -> Terms:
    with torch.no_grad():
        target_q = td_target(
            rewards=batch.rewards,
            terminations=batch.terminations,
            next_values=policy_values(
                nets.target_actor, nets.target_critic, batch.next_obs, noise["next"]
            ),
            gamma=config.gamma,
        )
    return crr_critic_loss(q_values=logged_q(nets.critic, batch), target_q=target_q)


def actor_loss(nets: CRRAlgorithm, batch: Batch, noise: Noise, config: CRRConfig) -> Terms:
    probabilities = None
    with torch.no_grad():
        if nets.spec.action_kind == "discrete":
            probabilities = nets.actor(batch.obs).exp()
            q_samples = nets.critic(batch.obs).amin(0)
            q_values = pick(q_samples, batch.actions)
        else:
            draws = nets.actor.draw(batch.obs, noise["samples"])
            # logged and drawn actions in one forward pass
            q_all = nets.smallest_q(batch.obs, torch.cat([batch.actions.unsqueeze(0), draws]))
            q_values, q_samples = q_all[:, 0], q_all[:, 1:]
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


@register("crr", action_kinds=("continuous", "discrete"))
class CRRAlgorithm(Algorithm[CRRConfig]):
    losses = {"critic": critic_loss, "actor": actor_loss}

    continuous_options = frozenset({"n_action_samples"})

    def build(self, spec: ProblemSpec, config: CRRConfig) -> None:
        sizes = config.hidden_sizes
        if spec.action_kind == "discrete":
            self.actor = CategoricalActor(spec.obs_dim, spec.action_dim, sizes)
            self.critic = EnsembleMLP(config.num_critics, spec.obs_dim, sizes, spec.action_dim)
        else:
            self.actor = GaussianActor(
                spec.obs_dim, spec.action_dim, sizes, (-20.0, 2.0), state_dependent_std=True
            )
            self.critic = EnsembleMLP(config.num_critics, spec.obs_dim + spec.action_dim, sizes)
        self.target_actor, self.target_critic = target_of(self.actor), target_of(self.critic)

    def smallest_q(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Values (batch, samples) of actions (samples, batch, action_dim)."""
        return self.critic.at_actions(obs, actions).amin(0).T

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
        generator = self.generator if generator is None else generator
        if self.spec.action_kind == "discrete":  # all choices, weighted by π(a|s) exp Q(s,a)
            scores = self.actor(obs) + self.critic(obs).amin(0)
            return _choose(scores, generator)
        shape = (self.config.n_action_samples, len(obs), self.spec.action_dim)
        noise = torch.randn(shape, generator=generator, device=generator.device)
        actions = self.actor.draw(obs, noise.to(obs.device))
        chosen = _choose(self.smallest_q(obs, actions), generator)
        return actions[chosen, torch.arange(len(obs), device=obs.device)]

    def numpy_policy(self) -> NumpyFunction | None:
        return None if self.config.critic_weighted_policy else super().numpy_policy()


def _choose(scores: Tensor, generator: torch.Generator) -> Tensor:
    probabilities = scores.softmax(-1).to(generator.device)
    return torch.multinomial(probabilities, 1, generator=generator).squeeze(-1).to(scores.device)


CRR = CRRAlgorithm
