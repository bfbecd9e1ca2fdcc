"""Bootstrap over episodes: every member of an ensemble has its own resample of the log."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.transitions.batch import Batch


class EpisodeBootstrap:
    """Batches whose rows say how often their episode occurs in each member's resample.

    Episodes are resampled whole, because rows of one episode are no independent evidence.
    """

    def __init__(self, dataset: TransitionDataset, members: int, *, seed: int) -> None:
        self.dataset = dataset
        lengths = torch.from_numpy(dataset.episode_lengths)
        self._episode = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
        self.counts = resample_counts(len(lengths), members, seed)

    def sample(
        self, batch_size: int, generator: torch.Generator, device: torch.device | str | None
    ) -> Batch:
        """Draw a batch with replacement, with weights (batch, members)."""
        positions = torch.randint(len(self.dataset), (batch_size,), generator=generator)
        batch = self.dataset.gather(positions, device)
        weights = self.counts.index_select(0, self._episode.index_select(0, positions))
        return batch.with_weights(weights if device is None else weights.to(device))


def resample_counts(episodes: int, members: int, seed: int) -> Tensor:
    """Count each episode (episodes, members) in as many resamples with replacement."""
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(episodes, np.full(episodes, 1 / episodes), size=members)
    return torch.from_numpy(counts.T.astype(np.float32).copy())
