"""Judging a learner on given data, by the values of its critics."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rl_training.algorithms.acting import Acting
from rl_training.models import CategoricalActor, pick


class Valuing(Acting):
    """Values without gradient, as `validation/*` metrics use them.

    The defaults are for networks called `critic` and `target_critic` (and `target_actor`, if there is
    one) that take `(obs, actions)`, or `(obs)` for the values of all discrete choices. A learner whose
    networks differ overrides these methods. Randomness comes from `generator` alone.
    """

    def q_values(self, obs: Tensor, actions: Tensor) -> Tensor | None:
        """Values of actions by every critic, (critics, batch); None for a learner without critics."""
        critic = getattr(self, "critic", None)
        return None if critic is None else values_at(critic, obs, actions)

    def bootstrap_values(self, obs: Tensor, generator: torch.Generator) -> Tensor | None:
        """State values (batch,) that the targets of the critics bootstrap from.

        By default the least target critic at an action of the (target) policy, or its expectation
        over discrete choices.
        """
        critic = getattr(self, "target_critic", getattr(self, "critic", None))
        if critic is None:
            return None
        actor = getattr(self, "target_actor", self.actor)
        if isinstance(actor, CategoricalActor):
            return (actor(obs).exp() * critic(obs).amin(0)).sum(-1)
        return values_at(critic, obs, actor.sample(obs, generator)).amin(0)


def values_at(critic: Any, obs: Tensor, actions: Tensor) -> Tensor:
    """Values of actions by every critic, (critics, batch); quantiles are reduced to their mean."""
    values = pick(critic(obs), actions) if actions.ndim == 1 else critic(obs, actions)
    if values.ndim == 3:
        values = values.mean(-1)
    if values.shape == (len(obs), 1):
        values = values.T
    values = values.unsqueeze(0) if values.ndim == 1 else values
    if values.ndim != 2 or values.shape[1] != len(obs):
        raise TypeError(f"critics gave values of shape {tuple(values.shape)} for {len(obs)} rows")
    return values
