"""FQE: fitted Q evaluation of a fixed policy, or of the log's behaviour. Le, Voloshin & Yue 2019.

policy     y_i = r + γ (1-d) E_{a'~π} Q̄_i(s',a')     min_Q  Σ_i E[w_i (Q_i(s,a) - y_i)²]
behaviour  y_i = r + γ (1-d) V̄_i(s')                 min_V  Σ_i E[w_i (V_i(s) - y_i)²]

Every member i has a target of its own and learns from its own bootstrap sample of the episodes, in which
an episode occurs w_i times. So each member is one replicate of the whole estimate, and their spread holds
the doubt about the data as well as that about the fit. Values of next states are clipped to what the log's
rewards allow (`lowest_value`, `highest_value`), so that no member diverges by bootstrapping from its own error.

It learns no policy: `rl-training ope` fits it, with the judged policy's networks inside.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rl_training.algorithms.argument_checks import require_rows
from rl_training.algorithms.base import Algorithm, AlgorithmConfig, Noise, Terms, target_of
from rl_training.algorithms.registry import get_algorithm_spec, register
from rl_training.algorithms.targets import logged_q
from rl_training.config import ConfigError, RunError, option
from rl_training.data.transitions.batch import Batch
from rl_training.data.transitions.normalizer import ObservationNormalizer
from rl_training.models import EnsembleMLP
from rl_training.models.numpy_forward import NumpyFunction
from rl_training.spec import ProblemSpec


class FQEConfig(AlgorithmConfig):
    gamma: float = option(0.99, "discount per step", ge=0, le=1)
    tau: float = option(0.1, "share of the critics in each target update", gt=0, le=1)
    num_critics: int = option(10, "members of the ensemble", ge=2, le=1_000)
    policy_algo: str | None = option(
        None, "algorithm of the judged policy; null = the log's behaviour", unset="the behaviour"
    )
    policy_options: dict[str, Any] = option({}, "options of that algorithm")
    stochastic: bool = option(False, "judge the policy that draws its actions, not its modes")
    initial_value: float = option(0.0, "value that every member starts with")
    lowest_value: float | None = option(None, "floor of next values", unset="none")
    highest_value: float | None = option(None, "ceiling of next values", unset="none")
    policy_sha256: str = option("", "digest of the judged policy's networks")
    log_sha256: str = option("", "digest of the log")


def fqe_critic_loss(
    *,
    q_values: Tensor,
    rewards: Tensor,
    terminations: Tensor,
    next_values: Tensor,
    gamma: float,
    weights: Tensor | None = None,
) -> Terms:
    """q_values and next_values (critics, batch), weights (batch, critics), the others (batch,)."""
    require_rows(rewards=rewards, terminations=terminations)
    # a truncated transition bootstraps like any other
    target_q = torch.addcmul(rewards, 1 - terminations, next_values, value=gamma)
    errors = (q_values - target_q).square()
    if weights is not None:
        errors = errors * weights.T
    seen = q_values.detach()
    return {
        "critic_loss": errors.sum((-2, -1)) / rewards.shape[-1],
        "q_mean": seen.mean((-2, -1)),
        "q_spread": seen.mean(-1).std(-1),
        "target_q_mean": target_q.mean((-2, -1)),
    }


fqe_loss = fqe_critic_loss


def critic_loss(
    nets: FQEAlgorithm, batch: Batch, noise: Noise, config: FQEConfig, shared: Terms
) -> Terms:
    with torch.no_grad():
        next_values = nets.values(nets.target_critic, batch.next_obs, shared)
        if config.lowest_value is not None:
            next_values = next_values.clamp(config.lowest_value, config.highest_value)
    q_values = nets.critic(batch.obs) if nets.policy is None else logged_q(nets.critic, batch)
    return fqe_critic_loss(
        q_values=q_values,
        rewards=batch.rewards,
        terminations=batch.terminations,
        next_values=next_values,
        gamma=config.gamma,
        weights=batch.weights,
    )


@register("fqe", action_kinds=("continuous", "discrete"), listed=False)
class FQEAlgorithm(Algorithm[FQEConfig]):
    losses = {"critic": critic_loss}
    normalizes_observations = True
    bootstraps_episodes = True

    policy_scale: Tensor  # (obs_dim,): observations as the critics see them, times this
    policy_shift: Tensor  # (obs_dim,): plus this, they are as the policy's networks see them

    def build(self, spec: ProblemSpec, config: FQEConfig) -> None:
        shape, outputs = spec.obs_dim, 1
        if config.policy_algo is not None and spec.action_kind == "continuous":
            shape += spec.action_dim
        elif config.policy_algo is not None:
            outputs = spec.action_dim
        self.critic = EnsembleMLP(config.num_critics, shape, config.hidden_sizes, outputs)
        with torch.no_grad():
            self.critic.biases[-1].fill_(config.initial_value)
        self.target_critic = target_of(self.critic)
        self.policy = _untrained(config, spec, self.device)
        self.register_buffer("policy_scale", torch.ones(spec.obs_dim))
        self.register_buffer("policy_shift", torch.zeros(spec.obs_dim))
        self.has_policy = config.policy_algo is None

    def judge(
        self,
        policy: Algorithm[Any],
        policy_normalizer: ObservationNormalizer | None,
        normalizer: ObservationNormalizer | None,
    ) -> None:
        """Take over the networks to judge, and how their observations are normalised.

        `normalizer` is that of the critics, for which rows are normalised.
        """
        assert self.policy is not None
        self.policy.load_state_dict(policy.state_dict())
        ones, zeros = torch.ones(self.spec.obs_dim), torch.zeros(self.spec.obs_dim)
        std, mean = (ones, zeros) if normalizer is None else (normalizer.std, normalizer.mean)
        if policy_normalizer is not None:
            self.policy_scale.copy_(std / policy_normalizer.std)
            self.policy_shift.copy_((mean - policy_normalizer.mean) / policy_normalizer.std)
        else:
            self.policy_scale.copy_(std)
            self.policy_shift.copy_(mean)
        self.has_policy = True

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        result = super().load_state_dict(*args, **kwargs)
        self.has_policy = True
        return result

    def update_step(self, batch: Batch) -> Terms:
        if not self.has_policy:
            raise RunError("fqe judges the policy of a checkpoint: `rl-training ope CHECKPOINT`")
        shared = self.choices(batch.next_obs, self.generator)
        terms = self.minimize("critic", batch, shared=shared)
        self.track_targets(self.config.tau)
        return terms

    @property
    def draws_actions(self) -> bool:
        """True if values of states are means over draws; probabilities of choices are exact."""
        if self.policy is None or self.spec.action_kind == "discrete":
            return False
        return self.config.stochastic or self.policy.draws_without_exploring

    def choices(self, obs: Tensor, generator: torch.Generator) -> Terms:
        """Actions of the policy (batch, action_dim), or probabilities of its choices (batch, choices)."""
        if self.policy is None:
            return {}
        if self.spec.action_kind == "discrete":
            inputs = self._policy_inputs(obs)
            drawn = self.policy.choice_probabilities(inputs, explore=self.config.stochastic)
            return {"probabilities": drawn}
        return {"actions": self.act(obs, explore=self.config.stochastic, generator=generator)}

    @torch.no_grad()
    def logged_values(self, batch: Batch) -> Tensor:
        """Values of the logged actions to every member, (critics, batch); of states, for the behaviour."""
        return self.critic(batch.obs) if self.policy is None else logged_q(self.critic, batch)

    def values(self, critic: EnsembleMLP, obs: Tensor, choices: Terms) -> Tensor:
        """Value of every state to every member, (critics, batch), if the policy chooses like this."""
        if "actions" in choices:
            return critic(obs, choices["actions"])
        if "probabilities" in choices:
            return (critic(obs) * choices["probabilities"]).sum(-1)
        return critic(obs)

    @torch.no_grad()
    def act(
        self, obs: Tensor, *, explore: bool = False, generator: torch.Generator | None = None
    ) -> Tensor:
        """Actions of the judged policy; `obs` are normalised for the critics."""
        if self.policy is None:
            raise ConfigError("fqe of a log's behaviour has no policy to act with")
        return self.policy.act(self._policy_inputs(obs), explore=explore, generator=generator)

    def _policy_inputs(self, obs: Tensor) -> Tensor:
        """Observations normalised for the critics as the policy's networks see them."""
        return torch.addcmul(self.policy_shift, obs, self.policy_scale)

    def numpy_policy(self) -> NumpyFunction | None:
        return None


def _untrained(config: FQEConfig, spec: ProblemSpec, device: torch.device) -> Algorithm[Any] | None:
    """Build the learner whose weights `judge` or a checkpoint fills in; None for the behaviour."""
    if config.policy_algo is None:
        return None
    if config.policy_algo == "fqe":
        raise ConfigError("policy_algo: fqe learns no policy to judge")
    kind = get_algorithm_spec(config.policy_algo)
    learner = kind.algorithm(spec, kind.config(**config.policy_options), device=device)
    return learner.requires_grad_(False)


FQE = FQEAlgorithm
