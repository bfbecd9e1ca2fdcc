"""Where batches come from: a stream of ticks, each a batch or a stretch of collected steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from rl_training.algorithms.base import TrainingState
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.transitions.batch import Batch
from rl_training.data.transitions.batch_memory import BatchMemory

if TYPE_CHECKING:
    from rl_training.runtime.trainer import TrainerState


@dataclass(frozen=True)
class Collected:
    """So many environment steps went into the replay."""

    env_steps: int


class Experience(Protocol):
    """An explicit state machine, not a generator: every field is in `state_dict`."""

    updates_due: int  # batches still to come before anything else happens

    @property
    def phase(self) -> str:
        """Whether it is `offline`, learning from logs alone, or `online`."""
        ...

    def __next__(self) -> Batch | Collected: ...

    def clock(self, state: TrainerState) -> tuple[int, int]:
        """`global_step` and `epoch` after a tick."""
        ...

    def feedback(self, batch: Batch, errors: Tensor) -> None:
        """What an update found out about the rows of a batch."""
        ...

    def report(self) -> dict[str, float]:
        """Metrics of what happened since the last report."""
        ...

    def close(self) -> None: ...

    def state_dict(self) -> TrainingState: ...

    def load_state_dict(self, state: TrainingState) -> None: ...


class Offline:
    """Uniform batches from a fixed dataset, drawn from a generator of its own."""

    updates_due = 0
    phase = "offline"

    def __init__(
        self, dataset: TransitionDataset, batch_size: int, *, seed: int, device: torch.device
    ) -> None:
        self.dataset = dataset
        self.batch_size = batch_size
        self.device = device
        self.generator = torch.Generator()
        self.generator.manual_seed(seed)
        self._memory = BatchMemory(dataset.layout)

    def __next__(self) -> Batch:
        return self.dataset.sample(
            self.batch_size, generator=self.generator, device=self.device, memory=self._memory
        )

    def clock(self, state: TrainerState) -> tuple[int, int]:
        return state.update_count, state.update_count * self.batch_size // len(self.dataset)

    def feedback(self, batch: Batch, errors: Tensor) -> None:
        """Uniform draws do not depend on errors."""

    def report(self) -> dict[str, float]:
        return {}

    def close(self) -> None:
        """Nothing is open."""

    def state_dict(self) -> TrainingState:
        return TrainingState({"rng.data": self.generator.get_state()}, {})

    def load_state_dict(self, state: TrainingState) -> None:
        self.generator.set_state(state.tensors["rng.data"])
