"""Executor of this machine: a process for each trial, made by the nursery."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any

from rl_training.config import RunError
from rl_training.imports import starting_processes
from rl_training.sweeps.executor import Exit, Task

CLOSE_SECONDS = 120.0  # for tasks to save a checkpoint


class LocalExecutor:
    """Carries out tasks in processes of this machine."""

    def __init__(self) -> None:
        with starting_processes():
            self._nursery = subprocess.Popen(
                [sys.executable, "-m", "rl_training.sweeps.nursery"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                # threads that NumPy would start by itself take cores from other trials
                env={"OPENBLAS_NUM_THREADS": "1", **os.environ},
            )
        self._running: set[str] = set()
        self._rest = b""
        self._selector = selectors.DefaultSelector()
        assert self._nursery.stdout is not None
        self._selector.register(self._nursery.stdout, selectors.EVENT_READ)
        self._send({"path": sys.path})

    def start(self, task: Task) -> None:
        self._running.add(task.name)
        self._send({"start": task.as_dict()})

    def wait(self, seconds: float) -> list[Exit]:
        """Return the tasks whose processes have ended."""
        deadline = time.monotonic() + seconds
        while True:
            if not self._selector.select(max(0.0, deadline - time.monotonic())):
                return []
            exits = self._read()
            if exits:
                return exits

    def _read(self) -> list[Exit]:
        assert self._nursery.stdout is not None
        piece = os.read(self._nursery.stdout.fileno(), 1 << 16)
        if not piece:
            code = self._nursery.wait()
            raise RunError(
                f"the process that starts trials died ({describe_exit(code)}); trials that ran are saved: "
                "the same command goes on"
            )
        lines = (self._rest + piece).split(b"\n")
        self._rest = lines.pop()
        exits = []
        for line in lines:
            message: dict[str, Any] = json.loads(line)
            if "ended" in message:
                self._running.discard(message["ended"])
                exits.append(Exit(message["ended"], describe_exit(message["code"])))
        return exits

    def stop(self) -> None:
        self._send({"stop": True})

    def close(self) -> None:
        """Let what runs save and end, then end the nursery."""
        assert self._nursery.stdin is not None
        assert self._nursery.stdout is not None
        with suppress(OSError):
            self._nursery.stdin.close()
        try:
            self._nursery.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._nursery.kill()
            self._nursery.wait()
        self._selector.close()
        self._nursery.stdout.close()

    def _send(self, message: dict[str, Any]) -> None:
        assert self._nursery.stdin is not None
        with suppress(BrokenPipeError):  # `wait` says that it died
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
