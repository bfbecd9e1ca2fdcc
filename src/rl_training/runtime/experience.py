"""Where batches come from: a stream of ticks, each a batch or a stretch of collected steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from rl_training.algorithms.base import TrainingState
from rl_training.data.batch import Batch
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.row_layout import RowLayout
from rl_training.data.spare_batches import SpareBatches

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
        self._spare = SpareBatches(dataset.layout)

    def __next__(self) -> Batch:
        return self.dataset.sample(
            self.batch_size, generator=self.generator, device=self.device, spare=self._spare
        )

    def draw(self) -> Tensor:
        """Where the rows of the next batch are."""
        return self.dataset.draw(self.batch_size, self.generator)

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


class StackedOffline:
    """Batches of several seeds at once, each drawn from its own generator."""

    def __init__(self, seeds: Sequence[Offline]) -> None:
        self.seeds = seeds
        self._shared = all(each.dataset is seeds[0].dataset for each in seeds)

    @property
    def layout(self) -> RowLayout:
        return self.seeds[0].dataset.layout

    def draw(self) -> tuple[Tensor, Tensor | None]:
        """Rows (seeds, batch, width), and returns (seeds, batch) where the data has them."""
        pairs = [(each.dataset, each.draw()) for each in self.seeds]
        if self._shared:  # gathered in one go
            pairs = [(pairs[0][0], torch.cat([places for _, places in pairs]))]
        rows = torch.cat([dataset.rows_at(places) for dataset, places in pairs])
        found = [dataset.returns_at(places) for dataset, places in pairs]
        returns = None if found[0] is None else torch.cat([own for own in found if own is not None])
        shape, device = (len(self.seeds), -1), self.seeds[0].device
        return (
            rows.view(*shape, rows.shape[1]).to(device, non_blocking=True),
            None if returns is None else returns.view(shape).to(device, non_blocking=True),
        )
