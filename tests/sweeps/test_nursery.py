"""The nursery: what it does where processes cannot be started, or do not end."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from rl_training.sweeps import nursery
from rl_training.sweeps.executor import Exit, Task
from rl_training.sweeps.local import LocalExecutor

pytestmark = pytest.mark.skipif(not nursery.CAN_FORK, reason="needs fork")


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    handler = signal.getsignal(signal.SIGCHLD)
    yield
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, handler)


def serve(process: int | None, *commands: dict[str, Any]) -> list[dict[str, Any]]:
    """Let a nursery carry out the commands; returns its answers. `process` is a task that runs already."""
    (read_end, commands_end), (answers, answers_end) = os.pipe(), os.pipe()
    os.write(commands_end, b"".join(json.dumps(each).encode() + b"\n" for each in commands))
    os.close(commands_end)
    served = nursery.Nursery(read_end, answers_end)
    if process is not None:
        served._names[process] = "stubborn"
    served.run()
    os.close(answers_end)
    with os.fdopen(answers, "rb") as file:
        return [json.loads(line) for line in file]


def test_a_task_that_cannot_be_started_leaves_the_others_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse() -> int:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    (answer,) = serve(None, {"start": Task("a", {}, "a", "a.json", "a.log").as_dict()})
    executor = LocalExecutor.__new__(LocalExecutor)
    executor._rest, executor._running = b"", {"a"}
    reason = "it could not be started: Resource temporarily unavailable"
    assert executor._parse(json.dumps(answer).encode() + b"\n") == [Exit("a", reason)]


def test_a_task_that_ignores_signals_is_killed_once_it_had_time_to_save(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nursery, "SAVE_SECONDS", 0.0)
    deaf = subprocess.Popen(
        ["sh", "-c", "trap '' TERM; echo; while :; do sleep 1; done"], stdout=-1
    )
    assert deaf.stdout is not None
    deaf.stdout.readline()  # it ignores signals from now on
    (answer,) = serve(deaf.pid)
    deaf.stdout.close()
    deaf.returncode = -signal.SIGKILL  # the nursery has waited for it
    assert answer == {"ended": "stubborn", "code": -signal.SIGKILL}
