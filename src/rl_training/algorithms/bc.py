"""BC: behaviour cloning, deterministic or Gaussian, or of discrete choices.

deterministic  min_π  E[(π(s) - a)²]          mean over batch and action dimensions
gaussian       min_π  E[-log π(a|s)]          not squashed, one σ per dimension
discrete       min_π  E[-log π(a|s)]          softmax over the choices

With `top_fraction` it is %BC: only the best episodes by return are imitated.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from rl_training.algorithms.argument_checks import require_rows, require_same_shape
from rl_training.algorithms.base import Algorithm, AlgorithmConfig, Noise, Terms
from rl_training.algorithms.registry import register
from rl_training.config import option
from rl_training.data.transitions.batch import Batch
from rl_training.models import CategoricalActor, DeterministicActor, GaussianActor
from rl_training.spec import ProblemSpec


class BCConfig(AlgorithmConfig):
    policy_type: Literal["deterministic", "gaussian"] = option(
        "deterministic", "regress a continuous action, or maximise its likelihood"
    )


def bc_actor_loss(*, policy_actions: Tensor, actions: Tensor) -> Terms:
    """Mean squared error over batch and action dimensions."""
    require_same_shape(policy_actions=policy_actions, actions=actions)
    return {"actor_loss": (policy_actions - actions).square().mean((-2, -1))}


def bc_likelihood_actor_loss(*, log_probs: Tensor) -> Terms:
    """Negative log-likelihood of the logged actions; log_probs (batch,)."""
    require_rows(log_probs=log_probs)
    return {"actor_loss": -log_probs.mean(-1)}


bc_loss = bc_actor_loss


def actor_loss(nets: BCAlgorithm, batch: Batch, noise: Noise, config: BCConfig) -> Terms:
    if nets.spec.action_kind == "discrete":
        return bc_likelihood_actor_loss(log_probs=nets.actor.log_prob(batch.obs, batch.actions))
    if config.policy_type == "deterministic":
        return bc_actor_loss(policy_actions=nets.actor(batch.obs), actions=batch.actions)
    mean, log_std = nets.actor(batch.obs)
    terms = bc_likelihood_actor_loss(log_probs=nets.actor.log_prob(batch.obs, batch.actions))
    return {
        **terms,
        "action_mse": bc_actor_loss(policy_actions=mean, actions=batch.actions)["actor_loss"],
        "policy_std": log_std.exp().mean(),
    }


@register("bc", action_kinds=("continuous", "discrete"))
class BCAlgorithm(Algorithm[BCConfig]):
    losses = {"actor": actor_loss}
    normalizes_observations = True
    remedies = {"policy": "clone the best episodes only (top_fraction: 0.1)"}
    continuous_options = frozenset({"policy_type"})

    def build(self, spec: ProblemSpec, config: BCConfig) -> None:
        if spec.action_kind == "discrete":
            network: type[nn.Module] = CategoricalActor
        else:
            network = DeterministicActor if config.policy_type == "deterministic" else GaussianActor
        self.actor = network(spec.obs_dim, spec.action_dim, config.hidden_sizes)


BC = BCAlgorithm
