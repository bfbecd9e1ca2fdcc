"""Process of a trial: how long it waits for others, and what it says of errors."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from rl_training.runs.lock import RunLock
from rl_training.sweeps import worker
from rl_training.sweeps.executor import Task
from rl_training.sweeps.status import read_status


@pytest.fixture
def task(small_config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Task:
    for name in ("_accept_signals", "_report_warnings"):  # this process is no trial's
        monkeypatch.setattr(worker, name, lambda *_: None)
    paths = [str(tmp_path / name) for name in ("run", "status.json", "run.log")]
    return Task("a", small_config("bc").as_dict(), *paths)


def test_a_run_that_another_process_holds_is_waited_for_and_then_given_up(
    task: Task, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(worker, "LOCK_SECONDS", 0.1)
    Path(task.run_dir).mkdir()
    with RunLock(Path(task.run_dir)), caplog.at_level(logging.INFO, "rl_training"):
        assert worker.run_task(task) == 1
    status = read_status(Path(task.status))
    assert "is being trained by" in status.error
    assert status.is_user_error  # it has waited long: two more attempts would take as long
    assert caplog.text.count("waiting for it") == 1


def test_the_log_of_a_failed_trial_says_where(
    task: Task, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise worker.RunError("the motor is stuck")

    monkeypatch.setattr(worker, "train_in", fail)
    assert worker.run_task(task) == 1
    assert read_status(Path(task.status)).error == "the motor is stuck"
    assert "in fail" in capsys.readouterr().err
