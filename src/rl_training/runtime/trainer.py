"""The training loop: one for every algorithm and every data regime."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from rl_training.data.transitions.batch import Batch
from rl_training.engine import Terms
from rl_training.runtime.callbacks import Callback, CallbackList
from rl_training.runtime.experience.offline import Collected, Experience
from rl_training.runtime.loop.timing import Spans

INTERRUPTED = "interrupted"  # by a signal: the only stop that a plain resume goes on from


class Moment(NamedTuple):
    """Where a run stood when something was measured."""

    global_step: int
    update_count: int
    epoch: int
    phase: str


@dataclass
class TrainerState:
    """Where a run stands. Callbacks read it and may ask it to stop."""

    algorithm: Any  # the learner
    run_dir: Path | None = None
    global_step: int = 0  # gradient updates while offline, environment steps while collecting
    epoch: int = 0  # passes over the dataset
    update_count: int = 0
    phase: str = "offline"  # or online, once it collects
    updates_due: int = 0  # of the current environment step, still to come
    good_step: int | None = None  # a checkpoint that must be kept
    unsaved: bool = False  # the policy was exchanged after the last checkpoint
    should_stop: bool = False
    stop_reason: str | None = None
    spans: Spans = field(default_factory=Spans)  # where the time goes

    def moment(self) -> Moment:
        return Moment(self.global_step, self.update_count, self.epoch, self.phase)

    def request_stop(self, reason: str) -> None:
        """End the run at this tick; the first reason is kept."""
        if not self.should_stop:
            self.should_stop, self.stop_reason = True, reason

    def progress(self) -> dict[str, Any]:
        return {
            "global_step": self.global_step,
            "epoch": self.epoch,
            "update_count": self.update_count,
            "should_stop": self.should_stop,
            "stop_reason": self.stop_reason,
        }


@dataclass(frozen=True)
class TrainResult:
    """What a run left behind."""

    run_dir: Path
    checkpoint_path: Path
    metrics: dict[str, float] = field(default_factory=dict)
    stop_reason: str | None = None


class Trainer:
    """Iterates over an experience, updates the algorithm, tells the callbacks."""

    def __init__(self, experience: Experience, state: TrainerState) -> None:
        self.experience = experience
        self.state = state
        self.callbacks: Callback = CallbackList()

    def run(self) -> None:
        state, callbacks, experience = self.state, self.callbacks, self.experience
        lap = state.spans.lap
        state.spans.start()
        callbacks.on_train_start(state)
        while not state.should_stop:
            lap("other")
            # the tick is made after the previous update, so collecting acts with fresh weights
            self._take(next(experience))
        callbacks.on_train_end(state)

    def _take(self, tick: Batch | Collected) -> None:
        """Nothing holds a batch afterwards, so that the next one can be in the same memory."""
        state, lap = self.state, self.state.spans.lap
        if isinstance(tick, Collected):
            lap("collect")
            self._look_at_the_clock()
            self.callbacks.on_collect_end(state, tick.env_steps)
            return
        lap("sample")
        terms = state.algorithm.update(tick)
        if state.algorithm.priorities is not None:
            self.experience.feedback(tick, state.algorithm.priorities)
        lap("update")
        self.after_update(terms)

    def after_update(self, terms: Terms) -> None:
        self.state.update_count = self.state.algorithm.update_count
        self._look_at_the_clock()
        self.callbacks.on_update_end(self.state, terms)

    def _look_at_the_clock(self) -> None:
        state, experience = self.state, self.experience
        state.phase, state.updates_due = experience.phase, experience.updates_due
        state.global_step, state.epoch = experience.clock(state)
