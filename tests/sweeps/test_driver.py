"""The driver, on an executor that does as it is told: order of exits, retries, signals."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from rl_training.stop_signals import REPEAT_SECONDS
from rl_training.sweeps.driver import Driver, driving
from rl_training.sweeps.executor import Exit, Task
from rl_training.sweeps.status import TrialStatus, read_status, write_status

Act = Callable[[Task], Exit]


def says(state: str, **facts: Any) -> Act:
    """A process that ends with this status."""

    def act(task: Task) -> Exit:
        write_status(Path(task.status), TrialStatus(state, attempt=task.attempt, **facts))  # type: ignore[arg-type]
        return Exit(task.name)

    return act


def dies(task: Task) -> Exit:
    return Exit(task.name, "killed by SIGKILL")


@dataclass
class ScriptedExecutor:
    """Ends tasks in the reverse order of their start, each as its script says."""

    scripts: dict[str, list[Act]]
    started: list[tuple[str, int]] = field(default_factory=list)
    running: list[Task] = field(default_factory=list)
    most: int = 0
    stopped: int = 0
    closed: bool = False
    waits: list[float] = field(default_factory=list)

    def start(self, task: Task) -> None:
        self.started.append((task.name, task.attempt))
        self.running.append(task)
        self.most = max(self.most, len(self.running))

    def wait(self, seconds: float) -> list[Exit]:
        self.waits.append(seconds)
        task = self.running.pop()
        return [self.scripts[task.name].pop(0)(task)]

    def stop(self) -> None:
        self.stopped += 1

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def make_task(tmp_path: Path) -> Callable[[str], Task]:
    def make(name: str) -> Task:
        return Task(
            name,
            {},
            str(tmp_path / name),
            str(tmp_path / f"{name}.json"),
            str(tmp_path / f"{name}.log"),
        )

    return make


def test_outcomes_keep_the_order_of_tasks_and_no_more_than_jobs_run(make_task: Any) -> None:
    executor = ScriptedExecutor({name: [says("ended")] for name in "abcd"})
    outcomes = Driver(executor, jobs=2).run([make_task(name) for name in "abcd"])
    assert [(o.task.name, o.state) for o in outcomes] == [(name, "ended") for name in "abcd"]
    assert executor.most == 2


def test_a_crash_is_tried_again_and_then_marked_failed_with_its_reason(make_task: Any) -> None:
    executor = ScriptedExecutor(
        {"a": [dies, dies, dies], "b": [dies, says("ended")], "c": [says("ended")]}
    )
    a, b, c = Driver(executor, jobs=1, retries=2).run([make_task(name) for name in "abc"])
    assert (a.state, a.error, a.attempts) == ("failed", "its process died (killed by SIGKILL)", 3)
    assert (b.state, b.attempts) == ("ended", 2)
    assert c.state == "ended"
    assert executor.started == [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2), ("c", 1)]
    assert json.loads(Path(a.task.status).read_text())["state"] == "failed"


def test_a_mistake_of_the_user_is_not_tried_again(make_task: Any) -> None:
    executor = ScriptedExecutor({"a": [says("failed", error="no such key", is_user_error=True)]})
    (outcome,) = Driver(executor, jobs=1, retries=5).run([make_task("a")])
    assert (outcome.state, outcome.attempts) == ("failed", 1)


def test_the_last_word_of_an_earlier_process_is_not_taken_for_that_of_this_one(
    make_task: Any,
) -> None:
    def leaves_the_status_of_attempt_1(task: Task) -> Exit:
        write_status(Path(task.status), TrialStatus("ended", attempt=task.attempt - 1))
        return Exit(task.name)

    task = make_task("a")
    executor = ScriptedExecutor({"a": [dies, leaves_the_status_of_attempt_1]})
    (outcome,) = Driver(executor, jobs=1, retries=1).run([task])
    assert (outcome.state, outcome.error) == ("failed", "its process died (it left without a word)")


def test_after_a_signal_what_runs_is_asked_to_stop_and_nothing_new_starts(make_task: Any) -> None:
    def interrupted(task: Task) -> Exit:
        os.kill(os.getpid(), signal.SIGTERM)
        return says("ended")(task)

    executor = ScriptedExecutor(
        {"a": [says("interrupted")], "b": [interrupted], "c": [says("ended")]}
    )
    with driving(executor, 2, 3, lambda *_: None) as driver:
        outcomes = driver.run([make_task(name) for name in "abc"])
    assert [outcome.state for outcome in outcomes] == ["interrupted", "ended", "waiting"]
    assert (executor.stopped, executor.closed) == (1, True)


def test_a_status_that_is_damaged_counts_as_none(make_task: Any) -> None:
    def scribbles(task: Task) -> Exit:
        Path(task.status).write_text('{"state": "ended", "attempt": "two", "step": [1')
        return Exit(task.name)

    (outcome,) = Driver(ScriptedExecutor({"a": [scribbles]}), jobs=1, retries=0).run(
        [make_task("a")]
    )
    assert outcome.state == "failed"


def test_every_change_of_a_status_is_reported(make_task: Any) -> None:
    seen: list[tuple[str, str]] = []
    executor = ScriptedExecutor({"a": [dies, says("ended")]})
    driver = Driver(executor, 1, 1, lambda name, status: seen.append((name, status.state)))
    driver.run([replace(make_task("a"))])
    assert [state for _, state in seen] == ["starting", "failed", "starting", "ended"]


def test_an_error_without_words_does_not_stop_the_others(make_task: Any) -> None:
    executor = ScriptedExecutor(
        {"a": [says("failed"), says("failed")], "b": [says("ended"), says("ended")]}
    )
    outcomes = Driver(executor, jobs=1, retries=1).run([make_task(name) for name in "ab"])
    assert [outcome.state for outcome in outcomes] == ["failed", "ended"]


def test_a_run_with_its_result_has_ended_though_the_disk_took_no_status(make_task: Any) -> None:
    def completes(task: Task) -> Exit:
        Path(task.run_dir).mkdir()
        (Path(task.run_dir) / "result.json").write_text("{}")
        return dies(task)

    executor = ScriptedExecutor({"a": [completes], "b": [dies]})
    done, died = Driver(executor, jobs=1, retries=0).run([make_task("a"), make_task("b")])
    assert (done.state, done.error, died.state) == ("ended", "", "failed")


def test_the_directory_of_the_statuses_may_vanish(make_task: Any, tmp_path: Path) -> None:
    task = replace(make_task("a"), status=str(tmp_path / "gone" / "a.json"))
    executor = ScriptedExecutor({"a": [says("ended")], "b": [says("ended")]})
    outcomes = Driver(executor, jobs=1, retries=0).run([task, make_task("b")])
    assert [outcome.state for outcome in outcomes] == ["failed", "ended"]
    assert outcomes[0].error == f"{tmp_path / 'gone'} is gone, which takes its status and its log"


def test_a_status_keeps_the_beginning_of_texts_of_any_length(tmp_path: Path) -> None:
    long = "motor " * 1_000_000
    write_status(tmp_path / "a.json", TrialStatus("failed", error=long, warnings=(long,) * 50))
    status = read_status(tmp_path / "a.json")
    assert status.state == "failed"
    assert status.error.startswith("motor motor")
    assert len(status.warnings) == 20


def test_the_driver_passes_a_signal_on_before_trials_take_it_for_a_second_one(
    make_task: Any,
) -> None:
    executor = ScriptedExecutor({"a": [says("ended")]})
    Driver(executor, jobs=1).run([make_task("a")])
    assert max(executor.waits) < REPEAT_SECONDS / 2
