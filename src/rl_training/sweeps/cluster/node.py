"""Task that carries a trial out on a node of the cluster, in a process that this one's nursery forks.

The trial's process is not the one that Ray knows: a crash, a memory limit or a nice level are the trial's alone.
Should Ray end this process, the nursery notices, and the trial saves and ends.
"""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from rl_training.config import OutputError, first_line
from rl_training.runs.lock import RunLock
from rl_training.sweeps.cluster import hub as hub_answers
from rl_training.sweeps.cluster.mirror import RunMirror
from rl_training.sweeps.cluster.tree import RunTree
from rl_training.sweeps.executor import Task
from rl_training.sweeps.local import LocalExecutor

POLL_SECONDS = 1.0  # between two looks at the stop sign and, where files are returned, at them
LOCK_SECONDS = 120.0  # to wait for an earlier driver that is still letting go of a run
_PREFIX = "rl-training-returned-"  # of directories in which runs are trained that belong elsewhere
_ABANDONED_SECONDS = 600.0
_COMPARED = ("rl-training", "torch")  # packages whose versions must be the driver's
_EXECUTOR: tuple[str | None, LocalExecutor] | None = (
    None  # of this process, kept from trial to trial
)


@dataclass(frozen=True)
class NodeCheck:
    """Things that a node must have before it may train."""

    versions: Mapping[str, str]
    files: tuple[str, ...] = ()  # datasets and plugins
    directory: str | None = None  # shared; None if files are returned
    token: str = ""  # name of a file there, which holds the same


def installed_versions() -> dict[str, str]:
    """Return what must be equal on all nodes; the patch level of Python need not."""
    versions = {"python": ".".join(platform.python_version_tuple()[:2])}
    for package in _COMPARED:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "none"
    return versions


def problem_here(check: NodeCheck) -> str:
    """Say what this node lacks; empty if nothing."""
    here = installed_versions()
    for package, wanted in check.versions.items():
        if here.get(package) != wanted:
            return (
                f"has {package} {here.get(package)}, and the driver has {wanted}: install the same"
            )
    if check.directory is not None:
        problem = _directory_problem(Path(check.directory), check.token)
        if problem:
            return problem
    missing = next((path for path in check.files if not Path(path).exists()), None)
    return "" if missing is None else f"does not have {missing}: put it there, under the same path"


def _directory_problem(directory: Path, token: str) -> str:
    advice = "mount a directory that all nodes share, or pass --storage returned"
    try:
        if (directory / token).read_text(encoding="utf-8") != token:
            return f"sees other files in {directory}: {advice}"
        own = directory / f"{token}.{os.getpid()}"
        own.write_text(token, encoding="utf-8")
        own.unlink()
        with suppress(Timeout), FileLock(directory / f"{token}.lock", timeout=0):
            return f"does not see the locks of files in {directory}: mount it with locks, as NFS 4 has them, or pass --storage returned"
    except FileNotFoundError:
        return f"does not see {directory}: {advice}"
    except OSError as error:
        return f"cannot write to {directory} ({error.strerror}): {advice}"
    return ""


@dataclass(frozen=True)
class Assignment:
    """A task as it is handed to a node."""

    task: Mapping[str, Any]
    ticket: str
    check: NodeCheck
    working_directory: str
    returns_files: bool


def carry_out(assignment: Assignment, hub: Any) -> str:
    """Carry out a trial on this node; returns how its process died, or nothing."""
    import ray

    problem = problem_here(assignment.check)
    if problem:
        return f"{platform.node()} {problem}"
    task = Task.from_dict(assignment.task)
    stopped = hub.stopped.remote()
    if not _may_begin(assignment, task, hub, ray.get):
        return ""
    with suppress(OSError):  # it need not exist here
        os.chdir(assignment.working_directory)
    try:
        with _place_of(assignment, task, hub, ray.get) as (here, mirror):
            return _watched(here, mirror, lambda: bool(ray.wait([stopped], timeout=0)[0]))
    finally:
        ray.get(hub.end.remote(assignment.ticket, task.name))


def _may_begin(assignment: Assignment, task: Task, hub: Any, get: Callable[[Any], Any]) -> bool:
    paths = (task.run_dir, task.status, task.log) if assignment.returns_files else None
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        answer = get(hub.begin.remote(assignment.ticket, task.name, paths))
        if answer != hub_answers.LOCKED:
            return bool(answer == hub_answers.GO)
        if time.monotonic() > deadline:
            raise OutputError(f"{task.run_dir} is being trained by another process")
        time.sleep(0.5)


@contextmanager
def _place_of(
    assignment: Assignment, task: Task, hub: Any, get: Callable[[Any], Any]
) -> Iterator[tuple[Task, RunMirror | None]]:
    """Context of the task as it is carried out here: in the shared directory, or in one of this node."""
    if not assignment.returns_files:
        yield task, None
        return
    with _directory_here() as directory:
        here = replace(
            task,
            run_dir=str(directory / task.name),
            status=str(directory / "status.json"),
            log=str(directory / "log"),
        )
        home = RemoteReceiver(hub, get, assignment.ticket, task.name)
        mirror = RunMirror(home, Path(here.run_dir), Path(here.status), Path(here.log))
        mirror.fetch(task.run_dir)
        yield here, mirror


def _watched(task: Task, mirror: RunMirror | None, asked_to_stop: Callable[[], bool]) -> str:
    """Wait for the end of a trial, pass on the request to stop, and return its files."""
    executor = _executor()
    asked = False
    try:
        executor.start(task)
        while True:
            exits = executor.wait(POLL_SECONDS)
            if mirror is not None:
                mirror.send(everything=bool(exits))
                mirror.report()
            if exits:
                return exits[0].died
            if not asked and asked_to_stop():
                asked = True
                executor.stop()
    except BaseException:
        _drop_executor()  # the trial saves and ends, and this waits for it
        raise


def _executor() -> LocalExecutor:
    """Return the executor of this process; another one if it is to see other GPUs."""
    global _EXECUTOR
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if _EXECUTOR is not None and _EXECUTOR[0] != visible:
        _drop_executor()
    if _EXECUTOR is None:
        _EXECUTOR = (visible, LocalExecutor())
    return _EXECUTOR[1]


def _drop_executor() -> None:
    global _EXECUTOR
    if _EXECUTOR is not None:
        _EXECUTOR[1].close()
    _EXECUTOR = None


@contextmanager
def _directory_here() -> Iterator[Path]:
    """Context of a directory for one run; those that killed processes have left are removed."""
    _remove_abandoned(Path(tempfile.gettempdir()))
    directory = Path(tempfile.mkdtemp(prefix=_PREFIX))
    with RunLock(directory):
        yield directory
        shutil.rmtree(directory, ignore_errors=True)


def _remove_abandoned(parent: Path) -> None:
    for path in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            facts = path.lstat()
            if facts.st_uid != os.getuid() or time.time() - facts.st_mtime < _ABANDONED_SECONDS:
                continue
            with RunLock(path):
                runs = [entry for entry in path.iterdir() if entry.is_dir()]
                for run in runs:  # its process may still be saving
                    RunLock(run).release()
                shutil.rmtree(path, ignore_errors=True)


class RemoteReceiver:
    """Receiver at the other end of Ray."""

    def __init__(self, hub: Any, get: Callable[[Any], Any], ticket: str, name: str) -> None:
        self._hub, self._get, self._ticket, self._name = hub, get, ticket, name

    def _ask(self, operation: str, *arguments: Any) -> Any:
        return self._get(self._hub.files.remote(self._ticket, self._name, operation, *arguments))

    def tree(self) -> RunTree:
        tree: RunTree = self._ask("tree")
        return tree

    def read(self, path: str, offset: int) -> bytes:
        return bytes(self._ask("read", path, offset))

    def write(self, path: str, offset: int, content: bytes) -> None:
        self._ask("write", path, offset, content)

    def link(self, path: str, existing: str) -> bool:
        return bool(self._ask("link", path, existing))

    def place(self, path: str) -> None:
        self._ask("place", path)

    def place_step(self, step: int) -> None:
        self._ask("place_step", step)

    def discard_step(self, step: int) -> None:
        self._ask("discard_step", step)

    def remove(self, path: str) -> None:
        self._ask("remove", path)

    def remove_step(self, step: int) -> None:
        self._ask("remove_step", step)

    def point(self, name: str, step: int) -> None:
        self._ask("point", name, step)

    def report(self, status: Mapping[str, Any] | None, log: bytes) -> None:
        self._ask("report", status, log)


def why(error: BaseException) -> str:
    """Put an error into a line."""
    return f"{type(error).__name__}: {first_line(error)}"
