"""Process that imports PyTorch once and forks a process for each task of the local executor.

A fork starts in milliseconds where an interpreter that imports PyTorch takes seconds, and all share the
memory of what was imported. This process computes nothing and starts no thread, so a fork of it is sound.
Where there is no fork (not Linux), each task gets an interpreter of its own.

The executor talks to it in lines of JSON: `{"path": [...]}` first, then `{"start": TASK}`, `{"stop": true}`;
it answers `{"ended": NAME, "code": CODE}`. When the executor is gone, every task is asked
to save and end. A task whose nursery is gone does so by itself. A task that has been asked and has not ended
after `SAVE_SECONDS` is killed: its simulator may ignore signals.
"""

from __future__ import annotations

import json
import math
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from rl_training.imports import drop_safe_path
from rl_training.sweeps.executor import SAVE_SECONDS

CAN_FORK = sys.platform == "linux"


class Nursery:
    """Starts, stops and waits for tasks, as the lines that it reads say."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._rest = b""
        self._names: dict[int, str] = {}  # of tasks, by process
        self._lifeline = os.pipe()  # its writing end is open as long as this process lives
        self._kill_at = math.inf  # once tasks have been asked to end
        self._ended = os.pipe()  # a byte arrives when a process has ended
        os.set_blocking(self._ended[1], False)
        os.set_inheritable(self._lifeline[0], True)

    def run(self) -> None:
        """Serve until the executor is gone and no task is left."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._ended[1], warn_on_full_buffer=False)
        served = [self._commands, self._ended[0]]
        while self._names or self._commands in served:
            patience = min(5.0, max(0.1, self._kill_at - time.monotonic()))
            ready, _, _ = select.select(served, [], [], patience)
            if self._ended[0] in ready:
                os.read(self._ended[0], 4096)
            self._reap()
            if time.monotonic() >= self._kill_at:
                self._signal(signal.SIGKILL)
            if self._commands in ready and not self._obey():
                served.remove(self._commands)
                self._stop()

    def _obey(self) -> bool:
        """Carry out the commands that have come; False once there will be none any more."""
        piece = os.read(self._commands, 1 << 16)
        lines = (self._rest + piece).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            command = json.loads(line)
            if "path" in command:
                sys.path[:] = command["path"]
                _import_everything()
            elif "start" in command:
                self._start(command["start"])
            elif "stop" in command:
                self._stop()
        return bool(piece)

    def _start(self, task: dict[str, Any]) -> None:
        if not self._names:  # those that were asked to end have done so
            self._kill_at = math.inf
        try:
            process = self._fork(task) if CAN_FORK else self._spawn(task)
        except OSError as error:  # no more processes or memory: the others go on
            reason = f"it could not be started: {error.strerror}"
            self._answer({"ended": task["name"], "code": 1, "died": reason})
            return
        self._names[process] = task["name"]

    def _fork(self, task: dict[str, Any]) -> int:
        process = os.fork()
        if process:
            return process
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for end in (self._commands, self._answers, self._lifeline[1], *self._ended):
                os.close(end)
            code = carry_out(task, self._lifeline[0])
        finally:
            os._exit(code)  # what this process would tidy up belongs to its parent

    def _spawn(self, task: dict[str, Any]) -> int:
        read_end = self._lifeline[0]
        process = subprocess.Popen(
            [sys.executable, "-m", "rl_training.sweeps.nursery", str(read_end)],
            stdin=subprocess.PIPE,
            close_fds=True,
            pass_fds=(read_end,),
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps({"path": sys.path, "task": task}).encode())
        process.stdin.close()
        process.returncode = 0  # `_reap` waits for it, not `subprocess`
        return process.pid

    def _reap(self) -> None:
        for process, status in _ended_children():
            name = self._names.pop(process, None)
            if name is not None:
                self._answer({"ended": name, "code": os.waitstatus_to_exitcode(status)})

    def _stop(self) -> None:
        self._kill_at = min(self._kill_at, time.monotonic() + SAVE_SECONDS)
        self._signal(signal.SIGTERM)

    def _signal(self, number: signal.Signals) -> None:
        for process in self._names:
            with suppress(ProcessLookupError):
                os.kill(process, number)

    def _answer(self, message: dict[str, Any]) -> None:
        with suppress(OSError):  # the executor is gone
            os.write(self._answers, json.dumps(message).encode() + b"\n")


def _ended_children() -> Iterator[tuple[int, int]]:
    while True:
        try:
            process, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if process == 0:
            return
        yield process, status


def carry_out(values: dict[str, Any], lifeline: int) -> int:
    """Carry out one task in this process; its output goes to the log of the trial."""
    from rl_training.sweeps.executor import Task
    from rl_training.sweeps.worker import run_task

    task = Task.from_dict(values)
    log = os.open(task.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for stream in (1, 2):
        os.dup2(log, stream)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    threading.Thread(target=_stop_without, args=(lifeline,), daemon=True).start()
    try:
        return run_task(task)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def _stop_without(lifeline: int) -> None:
    """Ask this process to save and end once the nursery is gone."""
    with suppress(OSError):
        os.read(lifeline, 1)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(SAVE_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


def _import_everything() -> None:
    """Import what tasks need, so that processes forked from this one have it."""
    if CAN_FORK:
        from rl_training.sweeps.worker import import_everything

        import_everything()


def main() -> None:
    """Serve the executor that started this process, or carry out the one task that a nursery has sent."""
    drop_safe_path()
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the executor decides
    # held back, so that a task finds the signal that came before it could listen
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    if len(sys.argv) > 1:
        message = json.load(sys.stdin)
        sys.path[:] = message["path"]
        raise SystemExit(carry_out(message["task"], int(sys.argv[1])))
    answers = os.dup(1)
    os.dup2(2, 1)  # what modules print while they are imported is no answer
    Nursery(os.dup(0), answers).run()


if __name__ == "__main__":
    main()
