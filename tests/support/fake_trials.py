"""Executor whose runs are made up at once: a score of the configuration, and an order of ends that is drawn."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rl_training.runs.reading import read_rows
from rl_training.sweeps.executor import Exit, Task
from rl_training.sweeps.status import TrialStatus, write_status

# takes the configuration and the share of the budget that is spent
Score = Callable[[Mapping[str, Any], float], float]


class DriverKilled(BaseException):
    """Stands for kill -9 of the driver: what its processes have written stays."""


class FakeExecutor:
    """Writes the files that a run would leave, one evaluation after the other.

    After `killed_after` tasks the driver dies, and with `all_die` the tasks that it has started die with it. `fails`
    tells configurations whose run fails. The order in which tasks end is drawn with `order`.
    """

    def __init__(
        self,
        score: Score,
        *,
        order: int = 0,
        killed_after: int | None = None,
        all_die: bool = False,
        fails: Callable[[Mapping[str, Any]], bool] = lambda _: False,
    ) -> None:
        self.score, self.fails = score, fails
        self.killed_after, self.all_die = killed_after, all_die
        self.started: list[Task] = []
        self._random = random.Random(order)
        self._waiting: list[Task] = []

    def start(self, task: Task) -> None:
        if self.killed_after is not None and len(self.started) >= self.killed_after:
            raise DriverKilled
        self.started.append(task)
        self._waiting.append(task)

    def wait(self, seconds: float) -> list[Exit]:
        task = self._waiting.pop(self._random.randrange(len(self._waiting)))
        self._carry_out(task)
        return [Exit(task.name)]

    def stop(self) -> None:
        pass

    def close(self) -> None:
        for task in [] if self.all_die else self._waiting:  # processes outlive their driver
            self._carry_out(task)
        self._waiting.clear()

    def _carry_out(self, task: Task) -> None:
        if self.fails(task.config):
            status = TrialStatus(
                state="failed",
                attempt=task.attempt,
                error="the simulator broke",
                is_user_error=True,
            )
            write_status(Path(task.status), status)
            return
        run, budget = Path(task.run_dir), task.config["total_timesteps"]
        run.mkdir(exist_ok=True)
        (run / "config.yaml").write_text(json.dumps(task.config))
        interval = task.config["algo_kwargs"]["eval_interval"]
        reached = max((row["step"] for row in read_rows(run / "metrics.jsonl")), default=0)
        paused = False
        with (run / "metrics.jsonl").open("a") as file:
            steps = [step for step in (*range(0, budget, interval), budget) if step > reached]
            for step in steps:  # the last policy is always evaluated
                row = {"step": step, "eval/return_mean": self.score(task.config, step / budget)}
                file.write(json.dumps(row) + "\n")
                if task.pause_at is not None and task.pause_at <= step < budget:
                    paused = True
                    break
        if not paused:
            result = {
                "step": budget,
                "stop_reason": "total_timesteps",
                "metrics": {},
                "seconds": {},
            }
            (run / "result.json").write_text(json.dumps(result))
        state = "paused" if paused else "ended"
        write_status(Path(task.status), TrialStatus(state=state, attempt=task.attempt))
