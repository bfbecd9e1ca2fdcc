"""Facts of training data that tell what values, actions and scores are possible."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.transitions.summary import complete_episodes
from rl_training.spec import ProblemSpec

_SAMPLE = 100_000  # rows whose actions are measured


@dataclass(frozen=True)
class Behaviour:
    """Returns of the log's complete episodes, in the units of the log."""

    mean: float
    standard_error: float
    episodes: int


@dataclass(frozen=True)
class DataFacts:
    """Facts of the training data that metrics are compared with."""

    largest_reward: float  # in size, after all transforms
    action_variance: float | None  # mean over dimensions, in units of [-1, 1]; None if discrete
    action_dim: int  # dimensions, or choices
    behaviour: Behaviour | None = None  # None if episodes or their true rewards are unknown

    @property
    def uniform_log_prob(self) -> float:
        """Log-likelihood of any action under the uniform policy."""
        if self.action_variance is None:
            return -math.log(self.action_dim)
        return -math.log(2) * self.action_dim


def measure_behaviour(dataset: TransitionDataset) -> Behaviour | None:
    """Measure the returns of a log; None if its rewards are transformed or episodes unknown."""
    if dataset.boundaries == "unknown" or dataset.has_reward_transforms:
        return None
    returns = dataset.episode_returns[complete_episodes(dataset)]
    error = float(returns.std()) / math.sqrt(len(returns))
    return Behaviour(float(returns.mean()), error, len(returns))


def measure_facts(
    dataset: TransitionDataset, spec: ProblemSpec, behaviour: Behaviour | None
) -> DataFacts:
    """Measure the rows that are learned from, after all transforms."""
    variance = None
    if spec.action_kind == "continuous":
        rows = torch.arange(0, len(dataset), max(1, len(dataset) // _SAMPLE))
        variance = float(dataset.gather(rows).actions.var(0, correction=0).mean())
    largest = float(dataset.rewards.abs().max())
    return DataFacts(largest, variance, spec.action_dim, behaviour)
