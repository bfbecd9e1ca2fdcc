"""Online experience: collect environment steps, then learn from the replay, in turns."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_training.algorithms.base import Algorithm, TrainingState
from rl_training.data.replay.prioritized import PrioritizedReplayBuffer
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.data.replay_config import ReplayConfig
from rl_training.data.transitions.batch import Batch
from rl_training.data.transitions.batch_memory import BatchMemory
from rl_training.runtime.experience.collector import Collector, Observations
from rl_training.runtime.experience.protocols import Collected, Sampler
from rl_training.runtime.loop.saved_values import whole

log = logging.getLogger("rl_training")


class Online:
    """Every `train_frequency` environment steps, `gradient_updates_per_step` updates.

    Steps are counted one by one however many environments step at once, so the ratio of updates to
    data does not depend on `num_envs`.
    """

    def __init__(
        self,
        collector: Collector,
        algorithm: Algorithm[Any],
        options: ReplayConfig,
        *,
        sampler: Sampler | None = None,
        total_steps: int,
        data_seed: int,
        exploration_seed: int,
    ) -> None:
        self.collector, self.buffer = collector, collector.buffer
        self.sampler: Sampler = collector.buffer if sampler is None else sampler
        self.algorithm, self.options = algorithm, options
        self.total_steps = total_steps  # the run's first total: a longer resume bends no schedule
        self.env_steps = 0
        self.updates_due = 0
        self._updates_from = options.learning_starts  # environment steps
        self._random_steps = options.learning_starts  # with uniformly random actions
        self._generator = torch.Generator()
        self._generator.manual_seed(data_seed)
        self._rng = np.random.default_rng(exploration_seed)
        self._memory = BatchMemory()

    @property
    def phase(self) -> str:
        return "online"

    @property
    def replay(self) -> ReplayBuffer:
        return self.buffer

    def __next__(self) -> Batch | Collected:
        if self.updates_due:
            updates = self._updates_per_batch()
            self.updates_due -= updates
            self._anneal()
            return self._sample(updates)
        before = self.env_steps
        self.env_steps += self.collector.step(self._act)
        starts, every = self._updates_from, self.options.train_frequency
        rounds = max(0, self.env_steps - starts) // every - max(0, before - starts) // every
        self.updates_due = rounds * self.options.gradient_updates_per_step
        self.algorithm.after_collecting(before, self.env_steps)
        return Collected(self.env_steps - before)

    def _sample(self, updates: int) -> Batch:
        return self.sampler.sample(
            updates * self.algorithm.config.batch_size,
            generator=self._generator,
            device=self.algorithm.device,
            memory=self._memory,
        )

    def _anneal(self) -> None:
        """Set what changes in the course of a run: here the correction of prioritised replay."""
        if isinstance(self.buffer, PrioritizedReplayBuffer):
            start = self.options.priority_correction
            self.buffer.correction = start + (1 - start) * self._progress()

    def _updates_per_batch(self) -> int:
        """Return 1, or a whole round where the algorithm takes its updates together."""
        return self.options.gradient_updates_per_step if self.algorithm.joint_updates else 1

    def _progress(self) -> float:
        return min(1.0, self.env_steps / self.total_steps)

    def _act(self, obs: Observations) -> NDArray[Any]:
        """Act uniformly at first, counted in single steps; then the policy explores."""
        random = min(max(self._random_steps - self.env_steps, 0), len(obs))
        if random == 0:
            return self.algorithm.explore(obs, self._rng, self._progress())
        uniform = self._uniform(random)
        if random == len(obs):
            return uniform
        rest = self.algorithm.explore(obs[random:], self._rng, self._progress())
        return np.concatenate([uniform, rest])

    def _uniform(self, count: int) -> NDArray[Any]:
        spec = self.algorithm.spec
        if spec.action_kind == "discrete":
            return self._rng.integers(spec.action_dim, size=count)
        return 2 * self._rng.random((count, spec.action_dim), np.float32) - 1

    def feedback(self, batch: Batch, errors: Tensor) -> None:
        """Set the priorities of the rows of a batch to the errors found."""
        if isinstance(self.buffer, PrioritizedReplayBuffer):
            assert batch.indices is not None
            self.buffer.update_priorities(batch.indices, errors)

    def clock(self, update_count: int) -> tuple[int, int]:
        return self.env_steps, 0

    def report(self) -> dict[str, float]:
        """Return episode statistics since the last report, and the size of the replay."""
        return {**self.collector.episodes.report(), "rollout/buffer_size": float(len(self.buffer))}

    def guard_with(self, guard: AbstractContextManager[Any]) -> None:
        self.collector.guard = guard

    def close(self) -> None:
        self.collector.close()

    def _begin_empty(self) -> None:
        """Fill the replay anew before learning goes on."""
        self.updates_due = 0
        self._updates_from = self.env_steps + self.options.learning_starts
        log.warning(
            "the replay of this checkpoint is gone, as only a run's newest keeps it: %d steps are "
            "collected before learning goes on",
            self.options.learning_starts,
        )

    def state_dict(self) -> TrainingState:
        tensors, episodes = self.collector.state()
        replay = {f"replay.{key}": value for key, value in self.buffer.changing_state().items()}
        values = {
            "env_steps": self.env_steps,
            "updates_due": self.updates_due,
            "updates_from": self._updates_from,
            "total_steps": self.total_steps,
            "exploration": self._rng.bit_generator.state,
            "envs": episodes,
        }
        data = {"rng.data": self._generator.get_state()}
        return TrainingState({**data, **tensors, **replay}, values)

    def load_state_dict(self, state: TrainingState) -> None:
        replay = {
            key.removeprefix("replay."): value
            for key, value in state.tensors.items()
            if key.startswith("replay.")
        }
        values = state.values
        self.env_steps, self.updates_due = whole(values["env_steps"]), whole(values["updates_due"])
        most = self.collector.num_envs * self.options.gradient_updates_per_step
        if not 0 <= self.updates_due <= most:
            raise ValueError(f"{self.updates_due} updates are due after a step, not 0 to {most}")
        self._updates_from = whole(values["updates_from"])
        self.total_steps = whole(values["total_steps"])
        if "rows" in replay:
            self.buffer.load_state_dict(replay)
        elif int(replay.get("total", 1)):
            self._begin_empty()
        self._rng.bit_generator.state = values["exploration"]
        self._generator.set_state(state.tensors["rng.data"])
        self.collector.load_state(state.tensors, values["envs"])
