"""Where batches come from: a stream of ticks, each a batch or a stretch of collected steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from rl_training.data.batch import Batch
from rl_training.data.offline_dataset import TransitionDataset

if TYPE_CHECKING:
    from rl_training.runtime.trainer import TrainerState


@dataclass(frozen=True)
class Collected:
    """So many environment steps went into the replay."""

    env_steps: int


class Experience(Protocol):
    """An explicit state machine, not a generator: every field is in `state_dict`."""

    def __next__(self) -> Batch | Collected: ...

    def clock(self, state: TrainerState) -> tuple[int, int]:
        """`global_step` and `epoch` after an update."""
        ...

    def state_dict(self) -> dict[str, Tensor]: ...

    def load_state_dict(self, tensors: dict[str, Tensor]) -> None: ...


class Offline:
    """Uniform batches from a fixed dataset, drawn from a generator of its own."""

    def __init__(
        self, dataset: TransitionDataset, batch_size: int, *, seed: int, device: torch.device
    ) -> None:
        self.dataset = dataset
        self.batch_size = batch_size
        self.device = device
        self.generator = torch.Generator()
        self.generator.manual_seed(seed)

    def __next__(self) -> Batch:
        return self.dataset.sample(self.batch_size, generator=self.generator, device=self.device)

    def clock(self, state: TrainerState) -> tuple[int, int]:
        return state.update_count, state.update_count * self.batch_size // len(self.dataset)

    def state_dict(self) -> dict[str, Tensor]:
        return {"rng.data": self.generator.get_state()}

    def load_state_dict(self, tensors: dict[str, Tensor]) -> None:
        self.generator.set_state(tensors["rng.data"])
