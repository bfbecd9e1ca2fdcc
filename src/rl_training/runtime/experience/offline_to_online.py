"""Offline-to-online experience: pretraining on logged data, then fine-tuning while collecting."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from rl_training.algorithms.base import TrainingState
from rl_training.data.offline_to_online_config import OfflineToOnlineConfig, RatioSchedule
from rl_training.data.transitions.batch import Batch
from rl_training.runtime.experience.collector import Observations
from rl_training.runtime.experience.mixture import LoggedAndCollected, share
from rl_training.runtime.experience.online import Online
from rl_training.runtime.experience.protocols import Collected
from rl_training.runtime.loop.saved_values import whole


class OfflineToOnline(Online):
    """Online experience with a phase of updates before it, and logged rows in every batch."""

    sampler: LoggedAndCollected

    def __init__(
        self,
        *args: Any,
        sampler: LoggedAndCollected,
        finetuning: OfflineToOnlineConfig,
        **online: Any,
    ) -> None:
        super().__init__(*args, sampler=sampler, **online)
        self.dataset = sampler.dataset
        self.pretrain_updates = finetuning.offline_pretrain_updates
        self.pretrained = 0  # updates
        self._ratio = finetuning.ratio()
        if finetuning.initial_actions == "policy":
            self._random_steps = 0
        config = self.algorithm.config
        if self.algorithm.needs_returns(config):
            sampler.track_returns(
                self.collector.num_envs,
                config.gamma,
                lower_bounds=self.algorithm.returns_are_lower_bounds,
            )
        self._normalize = None if sampler.normalizer is None else sampler.normalizer.as_numpy()

    @property
    def phase(self) -> str:
        return "offline" if self.pretrained < self.pretrain_updates else "online"

    def __next__(self) -> Batch | Collected:
        if self.phase == "offline":
            updates = min(self._updates_per_batch(), self.pretrain_updates - self.pretrained)
            self.pretrained += updates
            return self._sample(updates)
        self.algorithm.online_progress = self._progress()
        tick = super().__next__()
        if isinstance(tick, Collected) and tick.env_steps:
            self.sampler.after_collecting(tick.env_steps)
        return tick

    def _anneal(self) -> None:
        ratio = self._ratio
        if isinstance(ratio, RatioSchedule):
            ratio = share(ratio, self.env_steps, self.total_steps)
        self.sampler.logged_share = ratio

    def _act(self, obs: Observations) -> NDArray[Any]:
        return super()._act(obs if self._normalize is None else self._normalize(obs))

    def clock(self, update_count: int) -> tuple[int, int]:
        """Count updates while pretraining, and environment steps from there on."""
        passes = self.pretrained * self.algorithm.config.batch_size // len(self.dataset)
        return self.pretrained + self.env_steps, passes

    def report(self) -> dict[str, float]:
        return {
            **super().report(),
            "rollout/dataset_size": float(len(self.dataset)),
            "rollout/pretrain_updates": float(self.pretrained),
            **self.sampler.report(),
        }

    def state_dict(self) -> TrainingState:
        tensors, values = super().state_dict()
        counts = self.sampler.state_dict()
        return TrainingState(tensors, {**values, "pretrained": self.pretrained, **counts})

    def load_state_dict(self, state: TrainingState) -> None:
        if "pretrained" not in state.values:  # of a run that was offline until now
            self._generator.set_state(state.tensors["rng.data"])
            self.pretrained = self.pretrain_updates
            return
        super().load_state_dict(state)
        self.pretrained = whole(state.values["pretrained"])
        self.sampler.load_state_dict(state.values)
        self.sampler.forget_cut_episodes(self.collector.num_envs)
