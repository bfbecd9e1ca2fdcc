"""Shared parts of SAC and its descendants: the temperature of the entropy, and joint updates.

An algorithm that uses these has `actor`, `critic`, `target_critic` and `temperature`, and a config
that derives from `SoftConfig`.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, field_validator
from torch import Tensor

from rl_training.algorithms.base import ActorCriticConfig, Algorithm, Noise, Terms
from rl_training.algorithms.targets import temperature_terms
from rl_training.config import option
from rl_training.data.transitions.batch import Batch
from rl_training.models import LearnedScale
from rl_training.spec import ProblemSpec


class SoftConfig(ActorCriticConfig):
    """Options of the maximum-entropy objective."""

    alpha: Annotated[float, Field(ge=0, strict=True)] | Literal["auto"] = option(
        "auto", "temperature α of the policy's entropy, or auto to learn it"
    )
    target_entropy: Annotated[float, Field(strict=True)] | Literal["auto"] = option(
        "auto", "entropy H that alpha aims at; auto (also null) = -dimensions, or 0.98 log(choices)"
    )
    temperature_learning_rate: float | None = option(
        None, "the temperature's own rate; null = learning_rate", gt=0
    )

    @field_validator("target_entropy", mode="before")
    @classmethod
    def _name_the_automatic(cls, value: Any) -> Any:
        return "auto" if value is None else value

    def entropy_for(self, spec: ProblemSpec) -> float:
        """Target entropy: the option, else -dim(A) for continuous and 0.98 log n for discrete actions."""
        if self.target_entropy != "auto":
            return self.target_entropy
        if spec.action_kind == "discrete":
            return 0.98 * math.log(spec.action_dim)
        return -float(spec.action_dim)


def new_temperature(algorithm: Algorithm[Any]) -> LearnedScale:
    """Create α; unless it is `auto`, no loss trains it."""
    alpha = algorithm.config.alpha
    if alpha == "auto":
        return LearnedScale()
    losses = {name: loss for name, loss in algorithm.losses.items() if name != "temperature"}
    algorithm.losses = losses  # type: ignore[misc]
    return LearnedScale(alpha)


def temperature_loss(
    nets: Any, batch: Batch, noise: Noise, config: SoftConfig, shared: Terms
) -> Terms:
    """Move the temperature by the log-probabilities of the policy's own actions."""
    return temperature_terms(
        log_alpha=nets.temperature.log,
        log_probs=shared["log_probs"],
        target_entropy=config.entropy_for(nets.spec),
    )


def policy_step(algorithm: Algorithm[Any], batch: Batch, noise: Noise) -> Terms:
    """Update the actor, and the temperature by the entropy that the actor had."""
    terms = algorithm.minimize("actor", batch, noise)
    if "temperature" in algorithm.losses:
        terms |= algorithm.minimize("temperature", batch, shared={"log_probs": -terms["entropy"]})
    return terms


def random_subset(algorithm: Algorithm[Any], generator: torch.Generator) -> Tensor:
    """Draw the `subset_size` critics whose least value is the next target."""
    members = torch.randperm(
        algorithm.config.num_critics, generator=generator, device=algorithm.device
    )
    return members[: algorithm.config.subset_size]


def joint_update_step(algorithm: Algorithm[Any], batch: Batch) -> Terms:
    """Update critics and targets on each part of a joint batch, and the policy on the last."""
    terms: Terms = {}
    for part in batch.parts(algorithm.updates_in(batch)):
        noise = {
            "subset": random_subset(algorithm, algorithm.generator),
            "next": algorithm.standard_normal(part.actions),
        }
        terms = algorithm.minimize("critic", part, noise)
        algorithm.track_targets(algorithm.config.tau)
    noise = {"policy": algorithm.standard_normal(part.actions)}
    return terms | policy_step(algorithm, part, noise)
