"""Sampler of offline-to-online training: logged and collected rows in one batch."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.offline_to_online_config import RatioSchedule
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.data.transitions.batch import Batch
from rl_training.data.transitions.batch_memory import BatchMemory
from rl_training.data.transitions.normalizer import ObservationNormalizer
from rl_training.data.transitions.returns import ReturnTracker
from rl_training.runtime.loop.saved_values import whole


class LoggedAndCollected:
    """Batches of a dataset and of a replay buffer; of the dataset alone until steps are collected.

    Logged rows stay for good; only collected ones make room for newer ones. Collected rows get the
    dataset's reward transform and observation normalisation, so that one batch has one scale.
    """

    def __init__(
        self,
        dataset: TransitionDataset,
        buffer: ReplayBuffer,
        *,
        update_size: int,
        normalizer: ObservationNormalizer | None = None,
    ) -> None:
        self.dataset, self.buffer, self.normalizer = dataset, buffer, normalizer
        self.update_size = update_size  # rows of one update; a batch may hold several updates
        # share of logged rows; None to draw from both sources as from one buffer
        self.logged_share: float | None = None
        self._returns: ReturnTracker | None = None
        self._logged_rows = self._updates = 0  # since the last report

    def track_returns(self, num_envs: int, gamma: float, *, lower_bounds: bool) -> None:
        """Keep returns to go of the collected rows, too, for losses that need them."""
        worst = float(self.dataset.rewards.min()) if lower_bounds else None
        self._returns = ReturnTracker(
            self.buffer.capacity, num_envs, gamma, self._rewards_at, worst
        )

    def sample(
        self,
        batch_size: int,
        *,
        generator: torch.Generator | None,
        device: torch.device | str | None = None,
        memory: BatchMemory | None = None,
    ) -> Batch:
        """Draw the rows of `batch_size / update_size` updates; logged rows come first in each."""
        updates = batch_size // self.update_size
        self._updates += updates
        if not len(self.buffer):
            self._logged_rows += batch_size
            return self.dataset.sample(
                batch_size, generator=generator, device=device, memory=memory
            )
        logged = self._logged_counts(updates, generator)
        older = self.dataset.draw(int(logged.sum()), generator)
        newer = self.buffer.draw(batch_size - len(older), generator)
        self._logged_rows += len(older)
        is_logged = torch.arange(self.update_size) < logged.unsqueeze(1)  # (updates, update_size)
        is_logged = is_logged.flatten()
        layout = self.buffer.layout
        rows = torch.empty(batch_size, layout.width)
        # the dataset's next actions, which collected rows lack, come after these columns
        rows[is_logged] = self.dataset.rows_at(older)[:, : layout.width]
        rows[~is_logged] = self._collected_rows(newer)
        returns = self._returns_of(older, newer, is_logged)
        if device is not None:
            rows = rows.to(device)
            returns = None if returns is None else returns.to(device)
        return Batch.from_rows(rows, layout, returns=returns)

    def _logged_counts(self, updates: int, generator: torch.Generator | None) -> Tensor:
        """Decide how many rows of each update are logged ones, (updates,)."""
        if self.logged_share is not None:
            return torch.full((updates,), round(self.logged_share * self.update_size))
        total, shape = len(self.dataset) + len(self.buffer), (updates, self.update_size)
        return (torch.randint(total, shape, generator=generator) < len(self.dataset)).sum(1)

    def _collected_rows(self, places: Tensor) -> Tensor:
        rows, layout = self.buffer.rows_at(places), self.buffer.layout
        self.dataset.with_reward_transforms_of(rows)
        if self.normalizer is not None:
            for columns in (layout.obs, layout.next_obs):
                rows[:, columns] = self.normalizer(rows[:, columns])
        return rows

    def _returns_of(self, older: Tensor, newer: Tensor, is_logged: Tensor) -> Tensor | None:
        logged_returns = self.dataset.returns_at(older)
        if self._returns is None or logged_returns is None:
            return None
        returns = torch.empty(len(is_logged))
        returns[is_logged] = logged_returns
        returns[~is_logged] = self._returns.returns[newer]
        return returns

    def _rewards_at(self, places: Tensor) -> Tensor:
        rows = self.dataset.with_reward_transforms_of(self.buffer.rows_at(places))
        return rows[:, self.buffer.layout.reward]

    def after_collecting(self, env_steps: int) -> None:
        """Note the newest rows of the buffer, whose episodes may have ended."""
        if self._returns is not None:
            newest = self.buffer.numbers[-env_steps:]
            self._returns.add(newest, *self.buffer.ends(newest))

    def report(self) -> dict[str, float]:
        """Return the mean composition of an update's rows since the last report."""
        if not self._updates:
            return {}
        logged = self._logged_rows / self._updates
        self._logged_rows = self._updates = 0
        return {
            "rollout/offline_rows_per_batch": logged,
            "rollout/online_rows_per_batch": self.update_size - logged,
        }

    def state_dict(self) -> dict[str, int]:
        return {"logged_rows": self._logged_rows, "batches": self._updates}

    def load_state_dict(self, counts: dict[str, int]) -> None:
        """Take back the counts, and the returns from the rows of the buffer, which is loaded."""
        self._logged_rows, self._updates = whole(counts["logged_rows"]), whole(counts["batches"])
        if self._returns is not None and len(self.buffer):
            numbers = self.buffer.numbers
            saved = self.buffer.columns_of(numbers)
            ends = self.buffer.ends(numbers)
            self._returns.rebuild(numbers, saved["env_ids"], saved["first"], *ends)

    def forget_cut_episodes(self, num_envs: int) -> None:
        """Drop what is tracked of episodes that had to be begun anew after a resume."""
        if self._returns is not None:
            for env in range(num_envs):
                if not self.buffer.in_episode(env):
                    self._returns.forget_running(env)


def share(schedule: RatioSchedule, step: int, total: int) -> float:
    """Return the share of logged rows after so many environment steps."""
    progress = min(1.0, step / (schedule.horizon or total))
    if schedule.kind == "cosine":
        progress = 0.5 * (1.0 - math.cos(math.pi * progress))
    return schedule.start + progress * (schedule.final - schedule.start)
