"""Experience that begins with logged data and goes on with what the learner collects itself."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_training.algorithms.base import TrainingState
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.offline_to_online_config import BridgeConfig, RatioSchedule
from rl_training.data.transitions.batch import Batch
from rl_training.data.transitions.normalizer import ObservationNormalizer
from rl_training.data.transitions.returns import ReturnTracker
from rl_training.runtime.experience.collector import Observations
from rl_training.runtime.experience.offline import Collected
from rl_training.runtime.experience.online import Online
from rl_training.runtime.trainer import TrainerState


class OfflineToOnline(Online):
    """Updates on logged data alone, then collecting, with batches of logged and collected rows.

    Logged rows stay for good; only collected ones make room for newer ones. Collected rows are shown
    as the dataset's are: with its reward transform and its observation normalisation.
    """

    def __init__(
        self,
        *args: Any,
        dataset: TransitionDataset,
        bridge: BridgeConfig,
        normalizer: ObservationNormalizer | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self.dataset, self.normalizer = dataset, normalizer
        self.pretrain_updates = bridge.offline_pretrain_updates
        self.ratio = bridge.ratio()
        self.pretrained = 0  # updates
        self._logged_rows = self._batches = 0  # since the last report
        self._returns: ReturnTracker | None = None
        config = self.algorithm.config
        if self.algorithm.needs_returns(config):
            self._returns = ReturnTracker(
                self.buffer.capacity, self.collector.num_envs, config.gamma, self._rewards_at
            )
        if normalizer is not None:
            self._mean = normalizer.mean.cpu().numpy()
            self._inverse_std = (1 / normalizer.std).cpu().numpy()

    @property
    def phase(self) -> str:
        return "offline" if self.pretrained < self.pretrain_updates else "online"

    def __next__(self) -> Batch | Collected:
        if self.phase == "offline":
            return self._pretraining_batch()
        self.algorithm.online_progress = self._progress()
        tick = super().__next__()
        if self._returns is not None and isinstance(tick, Collected):
            places = self.buffer.newest(tick.env_steps)
            self._returns.add(places, self.buffer.ended(places))
        return tick

    def _pretraining_batch(self) -> Batch:
        updates = min(self._updates_per_batch(), self.pretrain_updates - self.pretrained)
        self.pretrained += updates
        size = updates * self.algorithm.config.batch_size
        self._logged_rows += size
        self._batches += updates
        return self.dataset.sample(size, generator=self._generator, device=self.algorithm.device)

    def _batch(self) -> Batch:
        """Of every update's rows the same share is logged: its part of the batch comes first."""
        updates, size = self._updates_per_batch(), self.algorithm.config.batch_size
        self.updates_due -= updates
        logged = self._logged_counts(updates, size)
        places = self.dataset.draw(int(logged.sum()), self._generator)
        width = self.buffer.layout.width  # next actions, which collected rows lack, come after it
        older = self.dataset.rows_at(places)[:, :width]
        recent = self.buffer.draw(updates * size - len(places), self._generator)
        newer = self._collected_rows(recent)
        is_logged = torch.arange(size).expand(updates, size) < logged.unsqueeze(1)
        rows = torch.empty(updates * size, width)
        rows[is_logged.flatten()] = older
        rows[~is_logged.flatten()] = newer
        self._logged_rows += len(places)
        self._batches += updates
        returns = None
        older_returns = self.dataset.returns_at(places)
        if self._returns is not None and older_returns is not None:
            returns = torch.empty(updates * size)
            returns[is_logged.flatten()] = older_returns
            returns[~is_logged.flatten()] = self._returns.returns[recent]
            returns = returns.to(self.algorithm.device)
        return Batch.from_rows(rows.to(self.algorithm.device), self.buffer.layout, returns=returns)

    def _logged_counts(self, updates: int, size: int) -> Tensor:
        """How many rows of each update are logged ones, (updates,)."""
        ratio = self.ratio
        if ratio is None:  # as from one buffer
            drawn = torch.randint(
                len(self.dataset) + len(self.buffer), (updates, size), generator=self._generator
            )
            return (drawn < len(self.dataset)).sum(1)
        if isinstance(ratio, RatioSchedule):
            ratio = share(ratio, self.env_steps, self.total_steps)
        return torch.full((updates,), round(ratio * size))

    def _rewards_at(self, places: Tensor) -> Tensor:
        rows = self.dataset.with_reward_transforms_of(self.buffer.rows_at(places))
        return rows[:, self.buffer.layout.reward]

    def _collected_rows(self, places: Tensor) -> Tensor:
        rows = self.buffer.rows_at(places)
        self.dataset.with_reward_transforms_of(rows)
        if self.normalizer is not None:
            for columns in (self.buffer.layout.obs, self.buffer.layout.next_obs):
                rows[:, columns] = self.normalizer(rows[:, columns])
        return rows

    def _act(self, obs: Observations) -> NDArray[Any]:
        if self.normalizer is not None:
            obs = ((obs - self._mean) * self._inverse_std).astype(np.float32, copy=False)
        return super()._act(obs)

    def clock(self, state: TrainerState) -> tuple[int, int]:
        """Updates while pretraining, and environment steps from there on."""
        passes = self.pretrained * self.algorithm.config.batch_size // len(self.dataset)
        return self.pretrained + self.env_steps, passes

    def report(self) -> dict[str, float]:
        reported = {
            **super().report(),
            "rollout/dataset_size": float(len(self.dataset)),
            "rollout/pretrain_updates": float(self.pretrained),
        }
        if self._batches:
            size = self.algorithm.config.batch_size
            logged = self._logged_rows / self._batches
            reported |= {
                "rollout/offline_rows_per_batch": logged,
                "rollout/online_rows_per_batch": size - logged,
            }
        self._logged_rows = self._batches = 0
        return reported

    def state_dict(self) -> TrainingState:
        tensors, values = super().state_dict()
        counts = {
            "pretrained": self.pretrained,
            "logged_rows": self._logged_rows,
            "batches": self._batches,
        }
        if self._returns is not None:
            known = self._returns.state_dict()
            tensors = {**tensors, **{f"replay.tracked.{key}": v for key, v in known.items()}}
        return TrainingState(tensors, {**values, **counts})

    def load_state_dict(self, state: TrainingState) -> None:
        if "pretrained" not in state.values:  # of a run that was offline until now
            self._generator.set_state(state.tensors["rng.data"])
            self.pretrained = self.pretrain_updates
            return
        super().load_state_dict(state)
        prefix = "replay.tracked."
        tracked = {
            key.removeprefix(prefix): value
            for key, value in state.tensors.items()
            if key.startswith(prefix)
        }
        if self._returns is not None and tracked:
            self._returns.load_state_dict(tracked)
            for env in range(self.collector.num_envs):  # one may have had to start anew
                if not self.buffer.in_episode(env):
                    self._returns.forget_running(env)
        self.pretrained = state.values["pretrained"]
        self._logged_rows, self._batches = state.values["logged_rows"], state.values["batches"]


def share(schedule: RatioSchedule, step: int, total: int) -> float:
    """The share of logged rows after so many environment steps."""
    gone = min(1.0, step / (schedule.horizon or total))
    if schedule.kind == "cosine":
        gone = 0.5 * (1.0 - math.cos(math.pi * gone))
    return schedule.start + gone * (schedule.final - schedule.start)
