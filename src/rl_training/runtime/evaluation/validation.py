"""Validation: metrics of a learner on held-out episodes, without an environment.

All of them are in the units that are learned from: scaled rewards, normalised observations, actions
in [-1, 1]. Nothing is drawn from the random streams of the run, and the same rows, with the same
draws, are measured every time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_training.algorithms.base import Algorithm
from rl_training.algorithms.targets import batch_target
from rl_training.config import ConfigError, Problem
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.support import Support
from rl_training.data.transitions.batch import Batch

ROWS = 4_000  # measured at most
CHUNK = 2_000  # rows at a time; only the first chunk is compared with the training data


class Validator:
    """Measures a learner on held-out episodes; the data that it learns from is its support."""

    def __init__(
        self,
        algorithm: Algorithm[Any],
        held_out: TransitionDataset,
        learning: TransitionDataset,
        *,
        seed: int,
    ) -> None:
        self.algorithm, self.held_out, self.seed = algorithm, held_out, seed
        rows = np.random.default_rng(seed).permutation(len(held_out))[:ROWS]
        self._chunks = torch.split(torch.from_numpy(rows), CHUNK)
        starts = np.random.default_rng(seed).permutation(held_out.episode_starts)
        self._starts = torch.from_numpy(starts[:CHUNK])
        self._support = Support.measure(learning, seed)
        self.names = tuple(self._measured_names())

    def _measured_names(self) -> dict[str, float]:
        """Measure two rows, which shows what there is to measure before training begins."""
        try:
            return self._measure([self._chunks[0][:2]], self._starts[:1])
        except (TypeError, RuntimeError, AttributeError, IndexError, ValueError) as error:
            message = (
                f"{self.algorithm.name} cannot be judged on held-out rows ({error}): its class needs "
                "q_values, bootstrap_values and log_prob that fit its networks"
            )
            raise ConfigError([Problem(("algo_kwargs", "validation_fraction"), message)]) from error

    def run(self) -> dict[str, float]:
        """Measure all chosen rows."""
        return self._measure(list(self._chunks), self._starts)

    @torch.no_grad()
    def _measure(self, chunks: list[Tensor], starts: Tensor) -> dict[str, float]:
        sums: dict[str, float] = {}
        unlike: Tensor | None = None
        for number, rows in enumerate(chunks):
            generator = torch.Generator(self.algorithm.device).manual_seed(self.seed + number)
            batch = self.held_out.gather(rows, self.algorithm.device)
            policy_actions = self.algorithm.act(batch.obs, generator=generator)
            for name, values in self._terms(batch, policy_actions, generator).items():
                sums[name] = sums.get(name, 0.0) + float(values.double().mean()) * len(batch)
            if unlike is None:
                unlike = self._support.unlike(batch.obs, policy_actions)
        total = sum(map(len, chunks))
        metrics = {name: value / total for name, value in sums.items()}
        metrics |= self._initial_value(starts)
        assert unlike is not None
        metrics["unlike_share"] = float(unlike.double().mean())
        return {f"validation/{name}": value for name, value in metrics.items()}

    def _terms(
        self, batch: Batch, policy_actions: Tensor, generator: torch.Generator
    ) -> dict[str, Tensor]:
        """Values to average over critics and rows, by metric."""
        algorithm, terms = self.algorithm, {}
        logged_q = algorithm.q_values(batch.obs, batch.actions)
        gamma = getattr(algorithm.config, "gamma", None)
        if logged_q is not None and gamma is not None:
            next_values = algorithm.bootstrap_values(batch.next_obs, generator)
            if next_values is not None:
                target = batch_target(batch, next_values, gamma)
                terms["td_error"] = (logged_q - target).double().square()
        log_prob = algorithm.log_prob(batch.obs, batch.actions)
        if log_prob is not None:
            terms["log_prob"] = log_prob
        if algorithm.spec.action_kind == "discrete":
            terms["action_distance"] = (policy_actions != batch.actions).float()
        else:
            terms["action_distance"] = (policy_actions - batch.actions).square()
        if logged_q is not None:
            terms["logged_q"] = logged_q
            policy_q = algorithm.q_values(batch.obs, policy_actions)
            assert policy_q is not None
            terms["policy_q"] = policy_q
        return terms

    def _initial_value(self, starts: Tensor) -> dict[str, float]:
        """Value of the policy's actions in the first states of episodes, if there are critics."""
        generator = torch.Generator(self.algorithm.device).manual_seed(self.seed)
        obs = self.held_out.gather(starts, self.algorithm.device).obs
        values = self.algorithm.q_values(obs, self.algorithm.act(obs, generator=generator))
        return {} if values is None else {"initial_value": float(values.double().mean())}
