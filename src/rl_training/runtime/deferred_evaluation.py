"""Evaluation beside training: asked for at one evaluation point, applied at the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from rl_training.runtime.evaluation import EvaluationCallback, Report
from rl_training.runtime.evaluation_worker import EvaluationWorker
from rl_training.runtime.trainer import INTERRUPTED, Moment

if TYPE_CHECKING:
    from rl_training.runtime.trainer import TrainerState


class Pending(NamedTuple):
    """An evaluation that is under way: of which moment, and what was known then."""

    moment: Moment
    known: dict[str, float]


class DeferredEvaluationCallback(EvaluationCallback):
    """Hands the policy of every evaluation point to a worker, and applies the score at the next one.

    When a score is applied depends on steps alone, never on how long an evaluation took, so that a run
    is a function of its configuration. One that was under way is asked for again by a resume.
    """

    def __init__(
        self,
        worker: EvaluationWorker,
        interval: int,
        report: Report,
        *,
        weights_at: Callable[[int], Mapping[str, Tensor]],
        known: Callable[[], Mapping[str, float]],
        evaluates_first: bool = False,
    ) -> None:
        super().__init__(worker.answer, interval, report, evaluates_first=evaluates_first)
        self.worker, self.weights_at, self.known = worker, weights_at, known
        self.pending: Pending | None = None

    def on_train_start(self, state: TrainerState) -> None:
        if self.pending is not None:
            self._hand_over(state, self.pending.moment)
        super().on_train_start(state)

    def on_train_end(self, state: TrainerState) -> None:
        if state.stop_reason != INTERRUPTED:
            super().on_train_end(state)
            self._apply(state)

    def state_dict(self) -> dict[str, Any]:
        pending = None
        if self.pending is not None:
            pending = [list(self.pending.moment), self.pending.known]
        return {**super().state_dict(), "pending": pending}

    def load_state_dict(self, values: dict[str, Any]) -> None:
        super().load_state_dict(values)
        if values["pending"] is not None:
            moment, known = values["pending"]
            self.pending = Pending(Moment(*moment), known)

    def _evaluate(self, state: TrainerState) -> None:
        self._apply(state)  # it may return to an earlier policy, which is then the one to score
        # times are no part of what a resume repeats
        known = {k: value for k, value in self.known().items() if not k.startswith("time/")}
        asked = Pending(state.moment(), known)
        self._hand_over(state, asked.moment)
        self.pending = asked

    def _hand_over(self, state: TrainerState, moment: Moment) -> None:
        with state.spans("evaluate"):
            self.worker.ask(self.weights_at(moment.global_step))
        state.awaited = moment.global_step

    def _apply(self, state: TrainerState) -> None:
        if self.pending is None:
            return
        evaluation = self._score(state)
        pending, self.pending, state.awaited = self.pending, None, None
        self.report(pending.moment, evaluation, pending.known)
