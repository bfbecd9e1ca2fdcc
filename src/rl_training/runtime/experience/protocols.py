"""Interfaces between data and the training loop.

    batch or collected steps = next(experience)      # Trainer.run
        batch = sampler.sample(batch_size, ...)      # inside, when an update is due
        collector.step(act)                          # inside, otherwise
    algorithm.update(batch)
    experience.feedback(batch, errors)               # prioritised replay only

Regimes differ in the sampler: a dataset (offline), a replay buffer (online), or a mixture of both
(offline to online).
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from rl_training.algorithms.base import TrainingState
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.data.transitions.batch import Batch
from rl_training.data.transitions.batch_memory import BatchMemory


class Sampler(Protocol):
    """Source of random batches: `TransitionDataset`, `ReplayBuffer`, `LoggedAndCollected`."""

    def sample(
        self,
        batch_size: int,
        *,
        generator: torch.Generator | None,
        device: torch.device | str | None = None,
        memory: BatchMemory | None = None,
    ) -> Batch:
        """Draw `batch_size` transitions with the CPU `generator`, on `device`.

        The batch may lie in `memory`: it is valid until the next tick.
        """
        ...


@dataclass(frozen=True)
class Collected:
    """A tick in which environment steps went into the replay."""

    env_steps: int


class Experience(Protocol):
    """Stream of ticks: a batch to learn from, or a stretch of collected environment steps.

    A state machine rather than a generator, so that everything between two ticks can be saved.
    """

    updates_due: int  # batches still to come before anything else happens

    @property
    def phase(self) -> str:
        """Return `offline` while learning from logs alone, else `online`."""
        ...

    @property
    def replay(self) -> ReplayBuffer | None:
        """Buffer whose rows a checkpoint saves in segments; None while nothing is collected."""
        ...

    def __next__(self) -> Batch | Collected: ...

    def clock(self, update_count: int) -> tuple[int, int]:
        """Return `global_step` and `epoch` after a tick."""
        ...

    def feedback(self, batch: Batch, errors: Tensor) -> None:
        """Take the errors that an update found for the rows of a batch."""
        ...

    def report(self) -> dict[str, float]:
        """Return metrics of the time since the last report."""
        ...

    def guard_with(self, guard: AbstractContextManager[Any]) -> None:
        """Enter `guard` around every wait for an environment."""
        ...

    def close(self) -> None: ...

    def state_dict(self) -> TrainingState: ...

    def load_state_dict(self, state: TrainingState) -> None: ...
