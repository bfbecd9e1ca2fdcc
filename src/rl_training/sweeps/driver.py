"""Driver of many runs: starts trials where there is room, tries crashed ones again, reports how far they are."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from rl_training.config import CheckpointError
from rl_training.runs.layout import METRICS, RESULT, result_warnings
from rl_training.runs.reading import latest_metrics, read_result, read_rows
from rl_training.runtime.checkpoints.directories import find_checkpoint
from rl_training.runtime.loop.interrupt import Interrupt
from rl_training.runtime.loop.state import TrainResult
from rl_training.runtime.loop.stop_reasons import INTERRUPTED
from rl_training.sweeps.executor import Executor, Exit, Task
from rl_training.sweeps.status import TrialStatus, read_status, write_status

log = logging.getLogger("rl_training")
LOOK_SECONDS = 1.0  # between two looks at the statuses
# To wait for exits. `kill` of a process group, as by systemd and Slurm, reaches trials at once; those take
# a second signal for impatience, so that of the driver has to come within `REPEAT_SECONDS`.
WAIT_SECONDS = 0.2
Report = Callable[
    [str, TrialStatus], None
]  # called with a trial's name and its status when that has changed


@dataclass(frozen=True)
class Outcome:
    """End of one trial in this session: its state, and the reason if it failed."""

    task: Task
    state: Literal["ended", "paused", "interrupted", "failed", "waiting"]
    error: str = ""
    is_user_error: bool = False
    attempts: int = 1

    @property
    def result(self) -> TrainResult | None:
        """Read the result off the run directory; None if the run has no checkpoint."""
        return read_train_result(Path(self.task.run_dir), interrupted=self.state != "ended")


@dataclass
class _Running:
    task: Task
    read_at: int = 0  # modification time of the status that was read last


@dataclass
class Driver:
    """Carries out tasks, at most `jobs` at a time; the executor says where."""

    executor: Executor
    jobs: int
    retries: int = 2
    report: Report = lambda *_: None
    interrupt: Interrupt = field(default_factory=Interrupt)
    _running: dict[str, _Running] = field(default_factory=dict)

    def run(self, tasks: Iterable[Task]) -> list[Outcome]:
        """Carry out the tasks; returns an outcome for each, in their order.

        A task that crashes is begun again, `retries` times, from the last checkpoint of its run. After
        Ctrl-C or SIGTERM all that run save and end, and the others keep waiting.
        """
        tasks = list(tasks)
        waiting = deque(tasks)
        outcomes: dict[str, Outcome] = {}
        asked_to_stop = False
        next_look = 0.0
        while self._running or (waiting and not self.interrupt.interrupted):
            if self.interrupt.interrupted and not asked_to_stop:
                asked_to_stop = True
                self.executor.stop()
            while waiting and len(self._running) < self.jobs and not self.interrupt.interrupted:
                self._start(waiting.popleft())
            for ended in self.executor.wait(WAIT_SECONDS):
                outcome = self._outcome(ended)
                if outcome.state == "failed" and self._may_retry(outcome):
                    waiting.appendleft(replace(outcome.task, attempt=outcome.task.attempt + 1))
                    continue
                outcomes[ended.name] = outcome
            if time.monotonic() >= next_look:
                self._look()
                next_look = time.monotonic() + LOOK_SECONDS
        return [outcomes.get(task.name, Outcome(task, "waiting", attempts=0)) for task in tasks]

    def _start(self, task: Task) -> None:
        self._running[task.name] = _Running(task)
        status = TrialStatus(state="starting", attempt=task.attempt, updated=time.time())
        write_status(Path(task.status), status)
        self.report(task.name, status)
        self.executor.start(task)

    def _look(self) -> None:
        """Report every status that has changed."""
        for running in self._running.values():
            path = Path(running.task.status)
            with suppress(OSError):
                changed = path.stat().st_mtime_ns
                if changed != running.read_at:
                    running.read_at = changed
                    self.report(running.task.name, read_status(path))

    def _outcome(self, ended: Exit) -> Outcome:
        """Find out from its status how a task ended; a process without a last word has died.

        A run that has its result is complete, also if a full disk took no status.
        """
        task = self._running.pop(ended.name).task
        path = Path(task.status)
        status = read_status(path)
        said = status.attempt == task.attempt and status.state in (
            "ended",
            "paused",
            "interrupted",
            "failed",
        )
        if (ended.died or not said) and _is_complete(task):
            status = replace(status, state="ended", error="", attempt=task.attempt)
        elif ended.died or not said:
            stopped = self.interrupt.interrupted and ended.died in ("", "killed by SIGTERM")
            reason = f"its process died ({ended.died or 'it left without a word'})"
            if not path.parent.is_dir():
                reason = f"{path.parent} is gone, which takes its status and its log"
            state: Literal["interrupted", "failed"] = "interrupted" if stopped else "failed"
            status = replace(
                status, state=state, error="" if stopped else reason, is_user_error=False
            )
            status = replace(status, attempt=task.attempt, updated=time.time())
            write_status(path, status)
        self.report(task.name, status)
        return Outcome(task, status.state, status.error, status.is_user_error, task.attempt)  # type: ignore[arg-type]

    def _may_retry(self, outcome: Outcome) -> bool:
        if outcome.is_user_error or self.interrupt.interrupted:
            return False
        left = self.retries - outcome.task.attempt + 1
        if left <= 0:
            return False
        log.warning(
            "%s: %s; it is begun again (attempt %d of %d)",
            outcome.task.name, outcome.error.split("\n")[0], outcome.task.attempt + 1, self.retries + 1,
        )  # fmt: skip
        return True


def _is_complete(task: Task) -> bool:
    """Tell if nothing is left to do for a task; what a judge has found is in no result."""
    return task.judging is None and (Path(task.run_dir) / RESULT).is_file()


@contextmanager
def driving(executor: Executor, jobs: int, retries: int, report: Report) -> Iterator[Driver]:
    """Context of a driver that listens to signals; whatever happens, no task is left running."""
    interrupt = Interrupt()
    try:
        with interrupt.listening():
            yield Driver(executor, jobs, retries, report, interrupt)
    finally:
        executor.close()


def read_train_result(run_dir: Path, *, interrupted: bool = False) -> TrainResult | None:
    """Read the result of a run off its directory; None if it has no checkpoint."""
    try:
        checkpoint = find_checkpoint(run_dir)
    except CheckpointError:
        return None
    finished = read_result(run_dir)
    metrics = latest_metrics(read_rows(run_dir / METRICS))
    reason = (
        INTERRUPTED
        if interrupted and not (run_dir / RESULT).exists()
        else finished.get("stop_reason")
    )
    return TrainResult(
        run_dir,
        run_dir / "checkpoints" / checkpoint.name,
        metrics,
        reason,
        result_warnings(run_dir),
    )


def failures(outcomes: Sequence[Outcome]) -> list[Outcome]:
    return [outcome for outcome in outcomes if outcome.state == "failed"]
