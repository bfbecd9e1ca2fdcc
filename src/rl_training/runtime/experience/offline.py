"""Offline experience: batches from a fixed dataset."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from rl_training.algorithms.base import TrainingState
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.transitions.batch import Batch
from rl_training.data.transitions.batch_memory import BatchMemory
from rl_training.runtime.experience.episode_bootstrap import EpisodeBootstrap


class Offline:
    """Uniform batches from a fixed dataset, drawn from a generator of its own.

    With `members`, rows carry a weight for each of as many bootstrap samples of the episodes.
    """

    updates_due = 0
    phase = "offline"
    replay = None

    def __init__(
        self,
        dataset: TransitionDataset,
        batch_size: int,
        *,
        seed: int,
        device: torch.device,
        members: int = 0,
    ) -> None:
        self.dataset = dataset
        self.batch_size = batch_size
        self.device = device
        self.generator = torch.Generator()
        self.generator.manual_seed(seed)
        self._memory = BatchMemory()
        self._bootstrap = None if members == 0 else EpisodeBootstrap(dataset, members, seed=seed)

    def __next__(self) -> Batch:
        if self._bootstrap is not None:
            return self._bootstrap.sample(self.batch_size, self.generator, self.device)
        return self.dataset.sample(
            self.batch_size, generator=self.generator, device=self.device, memory=self._memory
        )

    def clock(self, update_count: int) -> tuple[int, int]:
        return update_count, update_count * self.batch_size // len(self.dataset)

    def feedback(self, batch: Batch, errors: Tensor) -> None:
        """Ignore errors: draws are uniform."""

    def report(self) -> dict[str, float]:
        return {}

    def guard_with(self, guard: AbstractContextManager[Any]) -> None:
        """Ignore it: there is no environment to wait for."""

    def close(self) -> None:
        """Do nothing: no environment is open."""

    def state_dict(self) -> TrainingState:
        return TrainingState({"rng.data": self.generator.get_state()}, {})

    def load_state_dict(self, state: TrainingState) -> None:
        self.generator.set_state(state.tensors["rng.data"])
