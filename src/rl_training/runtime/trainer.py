"""The training loop: one for every algorithm and every data regime.

`TrainerState` and `TrainResult` belong to it and are defined lower, where callbacks can see them.
"""

from __future__ import annotations

from collections.abc import Callable

from rl_training.algorithms.base import Terms
from rl_training.data.transitions.batch import Batch
from rl_training.runtime.experience.protocols import Collected, Experience
from rl_training.runtime.loop.callback import Callback, CallbackList
from rl_training.runtime.loop.state import TrainerState, TrainResult
from rl_training.runtime.loop.stop_reasons import INTERRUPTED

__all__ = ["INTERRUPTED", "TrainResult", "Trainer", "TrainerState"]


class Trainer:
    """Iterates over an experience, updates the algorithm, tells the callbacks."""

    def __init__(
        self,
        experience: Experience,
        state: TrainerState,
        callbacks: Callback | None = None,
        inspect: Callable[[Batch, Terms], None] | None = None,
    ) -> None:
        self.experience = experience
        self.state = state
        self.callbacks = CallbackList() if callbacks is None else callbacks
        self.inspect = inspect  # looks at each batch with the terms of its update

    def run(self) -> None:
        state, callbacks, experience = self.state, self.callbacks, self.experience
        state.spans.start()
        callbacks.on_train_start(state)
        while not state.should_stop:
            state.spans.lap("other")
            # the tick is made after the previous update, so collecting acts with fresh weights
            self._process(next(experience))
        callbacks.on_train_end(state)

    def _process(self, tick: Batch | Collected) -> None:
        """Learn from a batch, or note collected steps; nothing holds the batch afterwards."""
        state, lap = self.state, self.state.spans.lap
        if isinstance(tick, Collected):
            lap("collect")
            self._advance()
            self.callbacks.on_collect_end(state, tick.env_steps)
            return
        lap("sample")
        terms = state.algorithm.update(tick)
        if self.inspect is not None:
            self.inspect(tick, terms)
        if state.algorithm.priorities is not None:
            self.experience.feedback(tick, state.algorithm.priorities)
        lap("update")
        state.update_count = state.algorithm.update_count
        self._advance()
        self.callbacks.on_update_end(state, terms)

    def _advance(self) -> None:
        """Bring the counters of the state up to date after a tick."""
        state, experience = self.state, self.experience
        state.phase, state.mid_step = experience.phase, experience.updates_due > 0
        state.global_step, state.epoch = experience.clock(state.update_count)
