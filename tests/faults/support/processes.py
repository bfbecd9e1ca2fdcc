"""Forked processes: torch is imported once, and a process that is killed costs no import.

A child has a session of its own, so that signals to its group reach only it and its workers, and
whatever it leaves behind can be ended.
"""

from __future__ import annotations

import faulthandler
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from rl_training.config import RLTrainingError

DONE, REFUSED, FOREIGN = 0, 2, 99  # exit codes of `guarded`
ADDRESS_SPACE = 3 * 2**30  # bytes that a child may add to what it was forked with


@dataclass(frozen=True)
class Ended:
    """End of a child: its exit code, minus the signal that ended it, or None if it hung."""

    code: int | None
    output: str

    @property
    def tail(self) -> str:
        lines = [line for line in self.output.strip().splitlines() if line.strip()]
        return " | ".join(lines[-3:])[-400:]


class Child:
    """A function running in a forked process, with its output in a file."""

    def __init__(
        self,
        function: Callable[[], int],
        output: Path,
        *,
        environment: Mapping[str, str] | None = None,
        limited: bool = False,
    ) -> None:
        self.output = output
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _run_forked(function, output, environment or {}, limited)

    def poll(self) -> int | None:
        """Exit code if it has ended, as `subprocess` gives it."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if pid else None

    def wait(self, timeout: float = 60.0) -> Ended:
        """Wait for the end; what is left of its group is killed."""
        until, code = time.monotonic() + timeout, self.poll()
        while code is None and time.monotonic() < until:
            time.sleep(0.005)
            code = self.poll()
        self.end_group()
        if code is None:
            os.waitpid(self.pid, 0)
        text = self.output.read_bytes().decode(errors="replace") if self.output.exists() else ""
        return Ended(code, text)

    def end_group(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)


def _run_forked(
    function: Callable[[], int], output: Path, environment: Mapping[str, str], limited: bool
) -> None:
    code = FOREIGN
    try:
        os.setsid()
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        # pytest and the runner of cases may have put other objects there
        # (a file that closed its descriptor would close that of a child of this child)
        sys.stdout = open(1, "w", buffering=1, errors="replace", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1, errors="replace", closefd=False)  # noqa: SIM115
        faulthandler.disable()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ.update(environment)
        torch.set_num_threads(1)
        if limited:
            _limit_memory()
        code = function()
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + ADDRESS_SPACE
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def guarded(function: Callable[[], object]) -> int:
    """Call a function of the package and tell its own errors from foreign ones by the exit code."""
    try:
        function()
    except RLTrainingError as error:
        sys.stderr.write(f"refused: {type(error).__name__}: {error}\n")
        return REFUSED
    except BaseException:
        traceback.print_exc()
        return FOREIGN
    return DONE


def call(
    function: Callable[[], object],
    output: Path,
    *,
    timeout: float = 60.0,
    environment: Mapping[str, str] | None = None,
) -> Ended:
    """Run `guarded(function)` in a child and wait for it."""
    child = Child(lambda: guarded(function), output, environment=environment)
    return child.wait(timeout)
