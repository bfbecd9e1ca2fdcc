"""Times at which the policy is evaluated, and the report of its scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rl_training.algorithms.base import Terms
from rl_training.config import RunError
from rl_training.envs.errors import StepAbandoned
from rl_training.runtime.evaluation.evaluator import Evaluation, EvaluationError, Evaluator
from rl_training.runtime.evaluation.validation import Validator
from rl_training.runtime.loop.callback import Callback, Interval
from rl_training.runtime.loop.logging import MetricsLog
from rl_training.runtime.loop.saved_values import whole, whole_or_none
from rl_training.runtime.loop.state import TrainerState
from rl_training.runtime.loop.stop_reasons import INTERRUPTED


class EvaluationCallback(Callback):
    """Evaluates when `eval_interval` is crossed: on the same initial states, on held-out rows, or both.

    All metrics of one moment are one row. It is written first; then the `listeners`, which come after
    this callback in a tick, get `on_eval_end`, and after that their own hook of the tick.
    """

    def __init__(
        self,
        evaluator: Evaluator | None,
        seeds: Sequence[int],
        interval: int,
        log: MetricsLog,
        listeners: Callback,
        *,
        validator: Validator | None = None,
        evaluates_first: bool = False,
    ) -> None:
        self.evaluator, self.validator, self.seeds = evaluator, validator, seeds
        self.interval = Interval(interval)
        self.log, self.listeners = log, listeners
        self.evaluates_first = evaluates_first
        self.evaluated_at = -1
        self.owed = False  # in a checkpoint that was written because an evaluation failed
        self._phase = ""

    def on_train_start(self, state: TrainerState) -> None:
        self.interval.start(state)
        self._phase = state.phase
        if self.evaluates_first or self.owed:
            self.evaluate(state)

    def on_collect_end(self, state: TrainerState, env_steps: int) -> None:
        self._tick(state)

    def on_update_end(self, state: TrainerState, terms: Terms) -> None:
        self._tick(state)

    def on_train_end(self, state: TrainerState) -> None:
        """Score the final policy even if the budget is no multiple of the interval."""
        if self.evaluated_at != state.global_step and state.stop_reason != INTERRUPTED:
            self.evaluate(state)

    def state_dict(self) -> dict[str, Any]:
        return {
            "evaluated_at": self.evaluated_at,
            "owed": self.owed,
            "looked_at": self.interval.last,
        }

    def load_state_dict(self, values: dict[str, Any]) -> None:
        self.evaluated_at, self.owed = whole(values["evaluated_at"]), bool(values.get("owed"))
        self.interval.last = whole_or_none(values.get("looked_at"))

    def evaluate(self, state: TrainerState) -> None:
        """Score the policy, write the scores and pass them on.

        A signal in the midst of it leaves the evaluation to the run that goes on.
        """
        self.owed = True
        try:
            evaluation = None if self.evaluator is None else self._score(self.evaluator, state)
        except StepAbandoned:
            state.interrupt()
            return
        metrics = {} if evaluation is None else evaluation.metrics()
        if self.validator is not None:
            with state.spans("evaluate"):
                metrics |= self.validator.run()
        self.log.write(state, metrics)
        writer = self.log.writer
        if evaluation is not None:
            with state.spans("log"):
                writer.write_episodes(state.global_step, evaluation.returns, evaluation.lengths)
        latest = writer.latest
        if evaluation is None:
            # scores in the file are those of a run that this one branched off from
            latest = {name: value for name, value in latest.items() if name[:5] != "eval/"}
        self.listeners.on_eval_end(state, {**latest, **metrics})
        self.evaluated_at, self.owed = state.global_step, False

    def _score(self, evaluator: Evaluator, state: TrainerState) -> Evaluation:
        with state.spans("evaluate"):
            try:
                return evaluator.run(self.seeds)
            except RunError as error:
                raise EvaluationError(str(error)) from error.__cause__

    def _tick(self, state: TrainerState) -> None:
        crossed, phase_before = self.interval.crossed(state), self._phase
        self._phase = state.phase
        if crossed or phase_before != state.phase:  # the offline score, to compare later ones with
            self.evaluate(state)
