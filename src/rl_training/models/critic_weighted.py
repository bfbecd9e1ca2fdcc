"""Acting with a critic's help: of the policy's own actions, those of high value more often."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rl_training.models.actors import CategoricalActor, choose
from rl_training.models.mlp import EnsembleMLP


def least_q(critic: EnsembleMLP, obs: Tensor, actions: Tensor) -> Tensor:
    """The least critic's values (batch, samples) of actions (samples, batch, action_dim)."""
    return critic(obs, actions).amin(0).T


def critic_weighted_choices(actor: CategoricalActor, critic: EnsembleMLP, obs: Tensor) -> Tensor:
    """Probabilities (batch, choices) in proportion to π(a|s) exp Q(s,a)."""
    return (actor(obs) + critic(obs).amin(0)).softmax(-1)


def critic_weighted_sample(
    actor: Any, critic: EnsembleMLP, obs: Tensor, draws: int, generator: torch.Generator
) -> Tensor:
    """One of several draws for each observation, chosen with probability softmax(Q)."""
    if isinstance(actor, CategoricalActor):
        return choose(critic_weighted_choices(actor, critic, obs), generator)
    shape = (draws, len(obs), actor.action_dim)
    noise = torch.randn(shape, generator=generator, device=generator.device)
    actions: Tensor = actor.draw(obs, noise.to(obs.device))
    chosen = choose(least_q(critic, obs, actions).softmax(-1), generator)
    return actions[chosen, torch.arange(len(obs), device=obs.device)]
