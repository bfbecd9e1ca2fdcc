"""CQL: SAC or double DQN with critics kept low on unseen actions. Kumar et al. 2020.

gap_i        T log Σ_j exp(z_ij / T) - Q_i(s,a),   z_ij = Q_i(s,a_j) - log density(a_j)
             a_j: N uniform, N ~ π(·|s) and N ~ π(·|s'), all evaluated at s
multiplier   max_α'  α' α_cql (mean_i E[gap_i] - g)   with `cql_target_gap` g alone, else α'=1, g=0
critic       min_Q  Σ_i E[(Q_i(s,a) - y)²] + α' α_cql (E[gap_i] - g)
             y = r + γ (1-d) min_i Q̄_i(s',a'),   a' ~ π(·|s')
actor        min_π  E[α log π(a|s) - min_i Q_i(s,a)],   a ~ π(·|s)
temperature  min_α  -E[log α (log π(a|s) + H)]
Cal-QL       with `cal_ql`, z_ij of the policy's actions takes max(Q_i(s,a_j), return from s on)
discrete     gap = log Σ_a' exp Q(s,a') - Q(s,a),   y = r + γ (1-d) Q̄(s', argmax_a' Q(s',a'))
             collecting with chance ε uniformly, else argmax_a Q(s,a)
"""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from rl_training.algorithms.argument_checks import require_same_shape
from rl_training.algorithms.base import Algorithm, AlgorithmConfig, Noise, Terms, target_of
from rl_training.algorithms.registry import register
from rl_training.algorithms.soft import SoftConfig, new_temperature, policy_step, temperature_loss
from rl_training.algorithms.targets import (
    batch_target,
    calibrated,
    conservative_gap,
    critic_terms,
    max_backup,
    soft_actor_terms,
    temperature_terms,
)
from rl_training.config import DatasetError, option
from rl_training.data.replay_config import replay_options
from rl_training.data.transitions.batch import Batch
from rl_training.models import MLP, GreedyActor, LearnedScale, MLPSACModel, pick
from rl_training.spec import ProblemSpec


class CQLConfig(SoftConfig):
    hidden_sizes: tuple[Annotated[int, Field(ge=1, le=65_536)], ...] = option(
        (256, 256, 256), "width of each hidden layer"
    )
    actor_learning_rate: float | None = option(1e-4, "the actor's own rate", gt=0)
    temperature_learning_rate: float | None = option(1e-4, "the temperature's own rate", gt=0)
    cql_alpha: float = option(5.0, "weight of the conservative gap against the TD error", ge=0)
    num_cql_samples: int = option(10, "actions N drawn from each of three sources", ge=1)
    cql_temperature: float = option(1.0, "temperature T of the soft maximum", gt=0)
    importance_sampling: bool = option(True, "whether to divide by the density of drawn actions")
    cql_target_gap: float | None = option(
        None,
        "gap at which a learned multiplier holds the critics; null = fixed weight",
        unset="none: a fixed weight",
    )
    cql_clip_diff_min: float | None = option(
        None, "lower bound of each row's gap", unset="no bound"
    )
    backup_entropy: bool = option(False, "whether targets hold the entropy term, as in SAC")
    cal_ql: bool = option(
        False, "keep values of the policy's actions from falling below the data's returns (Cal-QL)"
    )
    max_target_backup: bool = option(
        False, "whether targets take the best of `num_cql_samples` next actions"
    )
    epsilon: float = option(
        0.05, "chance ε of a random choice when collecting; for discrete actions", ge=0, le=1
    )


def cql_multiplier_loss(
    *, multiplier: Tensor, gaps: Tensor, cql_alpha: float, target_gap: float
) -> Terms:
    """Its descent is the multiplier's ascent on both critics' mean; gaps (critics, batch)."""
    excess = gaps.detach().mean((-2, -1)) - target_gap
    return {"multiplier_loss": -multiplier * cql_alpha * excess, "multiplier": multiplier}


def cql_critic_loss(
    *,
    q_values: Tensor,
    target_q: Tensor,
    gaps: Tensor,
    cql_alpha: float,
    multiplier: Tensor | float = 1.0,
    target_gap: float = 0.0,
) -> Terms:
    """q_values and gaps (critics, batch), target_q (batch,)."""
    require_same_shape(q_values=q_values, gaps=gaps)
    terms = critic_terms(q_values, target_q)
    td_loss = terms["critic_loss"]
    penalties = multiplier * cql_alpha * (gaps.mean(-1) - target_gap)  # (critics,)
    terms |= {"td_loss": td_loss, "conservative_gap": gaps.mean((-2, -1))}
    return terms | {"critic_loss": td_loss + penalties.sum(0)}


def cql_actor_loss(*, q_values: Tensor, log_probs: Tensor, alpha: Tensor) -> Terms:
    """q_values (critics, batch) and log_probs (batch,) at the policy's actions."""
    return soft_actor_terms(values=q_values.amin(0), log_probs=log_probs, alpha=alpha)


cql_temperature_loss = temperature_terms


def cql_loss(
    *,
    q_values: Tensor,
    target_q: Tensor,
    gaps: Tensor,
    policy_q_values: Tensor,
    log_probs: Tensor,
    log_alpha: Tensor,
    cql_alpha: float,
    target_entropy: float,
) -> Terms:
    """Critic, actor and temperature in one dict, at a fixed `cql_alpha`."""
    critic = cql_critic_loss(q_values=q_values, target_q=target_q, gaps=gaps, cql_alpha=cql_alpha)
    actor = cql_actor_loss(q_values=policy_q_values, log_probs=log_probs, alpha=log_alpha.exp())
    temperature = cql_temperature_loss(
        log_alpha=log_alpha, log_probs=log_probs, target_entropy=target_entropy
    )
    return critic | actor | temperature


def logged_q_and_gaps(
    nets: CQLAlgorithm, batch: Batch, noise: Noise, config: CQLConfig
) -> tuple[Tensor, Tensor]:
    """Values of logged actions and their gaps, both (critics, batch), in one pass."""
    if nets.spec.action_kind == "discrete":
        q_of_all = nets.critic(batch.obs)  # (batch, choices)
        q_values = pick(q_of_all, batch.actions).unsqueeze(0)
        return q_values, q_of_all.logsumexp(-1) - q_values
    with torch.no_grad():
        current, current_log_probs = nets.actor.draw(batch.obs, noise["current"])
        following, next_log_probs = nets.actor.draw(batch.next_obs, noise["next"])
        uniform = torch.full_like(current_log_probs, -math.log(2) * batch.actions.shape[-1])
        log_densities = torch.cat([uniform, current_log_probs, next_log_probs])
        actions = torch.cat([batch.actions.unsqueeze(0), noise["uniform"], current, following])
    evaluated = nets.critic(batch.obs, actions)  # (critics, 1 + 3N, batch)
    q_values, sampled_q = evaluated[:, 0], evaluated[:, 1:]
    if config.cal_ql:
        sampled_q = calibrated(sampled_q, require_returns(batch), config.num_cql_samples)
    gaps = conservative_gap(
        q_values=q_values,
        sampled_q=sampled_q,
        log_densities=log_densities if config.importance_sampling else None,
        temperature=config.cql_temperature,
    )
    low = config.cql_clip_diff_min
    return q_values, gaps if low is None else gaps.clamp_min(low)


def require_returns(batch: Batch) -> Tensor:
    if batch.returns is None:
        raise DatasetError(
            "the batch has no returns, which cal_ql needs: sample from dataset.with_returns(gamma, lower_bounds=True)"
        )
    return batch.returns


def next_values(nets: CQLAlgorithm, obs: Tensor, noise: Noise, config: CQLConfig) -> Tensor:
    if nets.spec.action_kind == "discrete":
        return pick(nets.target_critic(obs), nets.actor.mode(obs))
    actions, log_probs = nets.actor.draw(obs, noise["backup"])
    next_q = nets.target_critic(obs, actions)
    alpha = nets.temperature() if config.backup_entropy else 0.0
    return max_backup(next_q=next_q, log_probs=log_probs, alpha=alpha)


def multiplier_loss(nets: CQLAlgorithm, batch: Batch, noise: Noise, config: CQLConfig) -> Terms:
    with torch.no_grad():
        _, gaps = logged_q_and_gaps(nets, batch, noise, config)
    return cql_multiplier_loss(multiplier=nets.multiplier(), gaps=gaps, **nets.weighting())


def critic_loss(nets: CQLAlgorithm, batch: Batch, noise: Noise, config: CQLConfig) -> Terms:
    with torch.no_grad():
        values = next_values(nets, batch.next_obs, noise, config)
        multiplier = nets.multiplier() if "multiplier" in nets.losses else 1.0
    target_q = batch_target(batch, values, config.gamma)
    q_values, gaps = logged_q_and_gaps(nets, batch, noise, config)
    return cql_critic_loss(
        q_values=q_values, target_q=target_q, gaps=gaps, multiplier=multiplier, **nets.weighting()
    )


def actor_loss(nets: CQLAlgorithm, batch: Batch, noise: Noise, config: CQLConfig) -> Terms:
    actions, log_probs = nets.actor.draw(batch.obs, noise["policy"])
    q_values = nets.critic(batch.obs, actions)
    terms = cql_actor_loss(q_values=q_values, log_probs=log_probs, alpha=nets.temperature())
    distance = (actions.detach() - batch.actions).square().mean((-2, -1))
    return {**terms, "action_distance": distance}


@register("cql", regimes=("offline", "offline_to_online"), action_kinds=("continuous", "discrete"))
class CQLAlgorithm(Algorithm[CQLConfig]):
    losses = {
        "multiplier": multiplier_loss,
        "critic": critic_loss,
        "actor": actor_loss,
        "temperature": temperature_loss,
    }
    replay = replay_options(learning_starts=0)
    normalizes_observations = True
    returns_are_lower_bounds = True  # values are kept above them
    remedies = dict.fromkeys(("values", "policy"), "raise cql_alpha")
    continuous_options = (
        frozenset(CQLConfig.model_fields)
        - frozenset(AlgorithmConfig.model_fields)
        - {"critic_learning_rate", "gamma", "tau", "cql_alpha", "epsilon"}
    )
    discrete_options = frozenset({"epsilon"})

    @classmethod
    def needs_returns(cls, config: Any) -> bool:
        return bool(config.cal_ql)

    def build(self, spec: ProblemSpec, config: CQLConfig) -> None:
        unused = {"multiplier"} if config.cql_target_gap is None else set()
        if spec.action_kind == "discrete":
            self.critic: Any = MLP(spec.obs_dim, config.hidden_sizes, spec.action_dim)
            self.actor = GreedyActor(self.critic)
            unused |= {"actor", "temperature"}
        else:
            model = MLPSACModel(spec.obs_dim, spec.action_dim, config.hidden_sizes)
            self.actor, self.critic = model.actor, model.critic
            self.temperature, self.multiplier = new_temperature(self), LearnedScale()
        self.target_critic = target_of(self.critic)
        trained = {name: loss for name, loss in self.losses.items() if name not in unused}
        self.losses = trained  # type: ignore[misc]

    def weighting(self) -> dict[str, float]:
        """α_cql and g."""
        return {
            "cql_alpha": self.config.cql_alpha,
            "target_gap": self.config.cql_target_gap or 0.0,
        }

    def num_backups(self) -> int:
        """Count the next actions that targets take the best of."""
        return self.config.num_cql_samples if self.config.max_target_backup else 1

    def draw_noise(self, actions: Tensor) -> Noise:
        samples = self.config.num_cql_samples
        drawn = actions.expand(samples, *actions.shape)
        return {
            "uniform": 2 * self.standard_uniform(drawn) - 1,
            "current": self.standard_normal(drawn),
            "next": self.standard_normal(drawn),
            "backup": self.standard_normal(drawn[: self.num_backups()]),
            "policy": self.standard_normal(actions),
        }

    def update_step(self, batch: Batch) -> Terms:
        noise = {} if self.spec.action_kind == "discrete" else self.draw_noise(batch.actions)
        terms = self.minimize("multiplier", batch, noise) if "multiplier" in self.losses else {}
        terms |= self.minimize("critic", batch, noise)
        if "actor" in self.losses:
            terms |= policy_step(self, batch, noise)
        self.track_targets(self.config.tau)
        return terms

    def bootstrap_values(self, obs: Tensor, generator: torch.Generator) -> Tensor:
        shape = self.num_backups(), len(obs), self.spec.action_dim
        noise = {"backup": torch.randn(shape, generator=generator, device=obs.device)}
        return next_values(self, obs, noise, self.config)

    def explore(
        self, obs: NDArray[np.float32], rng: np.random.Generator, progress: float
    ) -> NDArray[Any]:
        if self.spec.action_kind == "discrete":
            return self.epsilon_greedy(obs, rng, self.config.epsilon)
        return super().explore(obs, rng, progress)


CQL = CQLAlgorithm
