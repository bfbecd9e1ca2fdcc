"""Support of a dataset: the states and actions that it has rows near to.

A pair (s, a) counts as unlike the data if it is farther from every reference row than 99 % of the
logged pairs are from the nearest row of another episode. Observations and actions are standardised
and divided by the root of their number of columns, so that both weigh the same. Of discrete actions
only rows with the same action are neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_training.data.offline_dataset import TransitionDataset

REFERENCE_ROWS = 5_000
QUANTILE = 0.99
_CHUNK = 512  # pairs measured at a time: 10 MB of distances
_CONSTANT = 1e-6  # deviation, relative to the mean's size, below which a column is constant


@dataclass(frozen=True, eq=False)
class Standard:
    """Columns as (x - mean) / deviation / sqrt(columns); a constant column stays in its units."""

    mean: Tensor
    scale: Tensor

    @classmethod
    def measure(cls, values: Tensor) -> Standard:
        mean, deviation = values.double().mean(0), values.double().std(0, correction=0)
        constant = deviation <= _CONSTANT * mean.abs().clamp_min(1.0)
        deviation = deviation.masked_fill(constant, 1.0)
        return cls(mean.float(), (1 / deviation / values.shape[1] ** 0.5).float())

    def apply(self, values: Tensor) -> Tensor:
        return (values.to("cpu", torch.float32) - self.mean) * self.scale


@dataclass(frozen=True, eq=False)
class Support:
    """Reference rows of a dataset, and the distance to them that is still usual."""

    points: Tensor  # (rows, columns): standardised observations, and actions if continuous
    choices: Tensor | None  # (rows,) discrete actions
    episodes: Tensor  # (rows,) number of the episode of each row
    limit: float
    obs_standard: Standard
    action_standard: Standard | None  # None if discrete

    @classmethod
    def measure(cls, dataset: TransitionDataset, seed: int) -> Support:
        """Take at most 5,000 reference rows, in the units that the dataset gives them.

        Episodes must be known. In a log of one episode every row counts as an episode by itself.
        """
        starts = dataset.episode_starts
        size = min(len(dataset), REFERENCE_ROWS)
        rows = np.sort(np.random.default_rng(seed).choice(len(dataset), size, replace=False))
        episodes = np.searchsorted(starts, rows, side="right") - 1 if len(starts) > 1 else rows
        batch = dataset.gather(rows)
        obs_standard = Standard.measure(batch.obs)
        action_standard = None if dataset.discrete else Standard.measure(batch.actions)
        support = cls(
            _points(batch.obs, batch.actions, obs_standard, action_standard),
            batch.actions if dataset.discrete else None,
            torch.from_numpy(episodes),
            0.0,
            obs_standard,
            action_standard,
        )
        distances = support.distances(batch.obs, batch.actions, episodes)
        finite = distances[distances.isfinite()]
        limit = float(finite.quantile(QUANTILE)) if len(finite) else 0.0
        return cls(**{**vars(support), "limit": limit})

    def unlike(self, obs: Tensor, actions: Tensor, episodes: Any = None) -> Tensor:
        """Tell which pairs lie outside of the support, as a bool tensor on the CPU.

        `episodes` numbers the pairs as the episodes of the measured dataset are: rows of a pair's own
        episode are then no neighbours of it.
        """
        return self.distances(obs, actions, episodes) > self.limit

    def distances(self, obs: Tensor, actions: Tensor, episodes: Any = None) -> Tensor:
        """Distance of each pair to the nearest reference row; infinite if there is none."""
        queries = _points(obs, actions, self.obs_standard, self.action_standard)
        numbers = None if episodes is None else torch.as_tensor(episodes)
        if self.choices is None:
            return _nearest(queries, self.points, numbers, self.episodes)
        result = torch.full((len(queries),), torch.inf)
        choices = actions.cpu()
        for choice in torch.unique(choices):
            asked, known = choices == choice, self.choices == choice
            if bool(known.any()):
                result[asked] = _nearest(
                    queries[asked],
                    self.points[known],
                    None if numbers is None else numbers[asked],
                    self.episodes[known],
                )
        return result


def _points(obs: Tensor, actions: Tensor, of_obs: Standard, of_actions: Standard | None) -> Tensor:
    points = of_obs.apply(obs)
    return points if of_actions is None else torch.cat([points, of_actions.apply(actions)], 1)


def _nearest(
    queries: Tensor, points: Tensor, numbers: Tensor | None, point_numbers: Tensor
) -> Tensor:
    """Distance to the nearest point, of another episode if the queries have numbers.

    Products of rows tell which point is nearest, several times as fast as differences do. They round
    small distances away, so that of the nearest one is measured by the difference.
    """
    halves = points.square().sum(1) / 2
    pieces = []
    for start in range(0, len(queries), _CHUNK):
        chunk = queries[start : start + _CHUNK]
        order = torch.addmm(halves, chunk, points.T, alpha=-1)  # (distance² - |query|²) / 2
        if numbers is not None:
            order.masked_fill_(numbers[start : start + _CHUNK, None] == point_numbers, torch.inf)
        least, nearest = order.min(1)
        distances = torch.linalg.vector_norm(chunk - points[nearest], dim=1)
        pieces.append(distances.masked_fill(least.isinf(), torch.inf))
    return torch.cat(pieces)
