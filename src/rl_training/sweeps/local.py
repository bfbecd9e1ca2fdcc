"""Executor of this machine: a process for each trial, made by the nursery."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any

from rl_training.imports import starting_processes
from rl_training.sweeps.executor import SAVE_SECONDS, Exit, Task

CLOSE_SECONDS = SAVE_SECONDS + 30.0  # after which the nursery has killed what has not ended


class LocalExecutor:
    """Carries out tasks in processes of this machine.

    Should the nursery die, its tasks save and end by themselves, and the next task gets a new nursery.
    """

    def __init__(self) -> None:
        self._nursery: subprocess.Popen[bytes] | None = None
        self._running: set[str] = set()
        self._rest = b""
        self._open()

    @property
    def process(self) -> int:
        """Return the number of the nursery's process, 0 if there is none."""
        return 0 if self._nursery is None else self._nursery.pid

    def start(self, task: Task) -> None:
        if self._nursery is None:
            self._open()
        self._running.add(task.name)
        self._send({"start": task.as_dict()})

    def wait(self, seconds: float) -> list[Exit]:
        """Return the tasks whose processes have ended."""
        if self._nursery is None:
            return []
        assert self._nursery.stdout is not None
        deadline = time.monotonic() + seconds
        while True:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([self._nursery.stdout], [], [], left)[0]:
                return []
            piece = os.read(self._nursery.stdout.fileno(), 1 << 16)
            exits = self._parse(piece) if piece else self._bury(self._nursery)
            if exits or not piece:
                return exits

    def _parse(self, piece: bytes) -> list[Exit]:
        lines = (self._rest + piece).split(b"\n")
        self._rest = lines.pop()
        exits = []
        for line in lines:
            message: dict[str, Any] = json.loads(line)
            self._running.discard(message["ended"])
            died = message.get("died") or describe_exit(message["code"])
            exits.append(Exit(message["ended"], died))
        return exits

    def _bury(self, nursery: subprocess.Popen[bytes]) -> list[Exit]:
        """Report the tasks of a nursery that has died."""
        self._nursery, self._rest = None, b""
        assert nursery.stdin is not None
        assert nursery.stdout is not None
        with suppress(OSError):  # a command that it has not read
            nursery.stdin.close()
        nursery.stdout.close()
        reason = describe_exit(nursery.wait()) or "it ended"
        exits = [Exit(name, f"with the one that started it: {reason}") for name in self._running]
        self._running.clear()
        return exits

    def stop(self) -> None:
        if self._nursery is not None:
            self._send({"stop": True})

    def close(self) -> None:
        """Let what runs save and end, then end the nursery."""
        nursery = self._nursery
        if nursery is None:
            return
        assert nursery.stdin is not None
        assert nursery.stdout is not None
        with suppress(OSError):
            nursery.stdin.close()
        try:
            nursery.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            nursery.kill()
            nursery.wait()
        nursery.stdout.close()
        self._nursery = None

    def _open(self) -> None:
        with starting_processes():
            self._nursery = subprocess.Popen(
                [sys.executable, "-m", "rl_training.sweeps.nursery"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                # threads that NumPy would start by itself take cores from other trials
                env={"OPENBLAS_NUM_THREADS": "1", **os.environ},
            )
        self._send({"path": sys.path})

    def _send(self, message: dict[str, Any]) -> None:
        assert self._nursery is not None
        assert self._nursery.stdin is not None
        with suppress(BrokenPipeError):  # `wait` notices that it died
            self._nursery.stdin.write(json.dumps(message).encode() + b"\n")
            self._nursery.stdin.flush()


def describe_exit(code: int) -> str:
    """Say how a process died; empty if it ended by itself."""
    if code in (0, 1):  # it has written its status
        return ""
    if code > 0:
        return f"exit code {code}"
    with suppress(ValueError):
        return f"killed by {signal.Signals(-code).name}"
    return f"killed by signal {-code}"
