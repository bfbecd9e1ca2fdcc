"""Executor of a Ray cluster: a trial is a Ray task, placed where its resources are free.

A lost node or process is an exit of its trials like a crash: the driver starts them again, elsewhere, from the
last checkpoint. The files of a run lie in a directory that all nodes see, or come back while it is trained.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args
from uuid import uuid4

from rl_training.config import ConfigError, RunError, first_line
from rl_training.runtime.config.train_config import TrainConfig
from rl_training.sweeps.cluster.connection import alive_nodes, capacity, connected
from rl_training.sweeps.cluster.hub import Hub
from rl_training.sweeps.cluster.node import Assignment, NodeCheck, carry_out, installed_versions
from rl_training.sweeps.cluster.probe import check_nodes, visible_token
from rl_training.sweeps.cluster.resources import check_resources, parse_resources, task_options
from rl_training.sweeps.executor import Executor, Exit, Task
from rl_training.sweeps.running import files_of

Storage = Literal["shared", "returned"]
CLOSE_SECONDS = 120.0  # for tasks to save a checkpoint
_MAX_TRIALS = 10_000  # that one hub serves


@dataclass(frozen=True)
class RayOptions:
    """Options of a cluster: its address, the resources of a trial, the way its files come back."""

    address: str | None = (
        None  # of a cluster; without one (or RAY_ADDRESS) Ray is started on this machine
    )
    resources: str = ""  # such as cpus=1,gpus=0.5
    storage: Storage = "shared"
    cores: int = 1  # of a Ray that is started on this machine

    def __post_init__(self) -> None:
        if self.storage not in get_args(Storage):
            raise ConfigError(f"--storage {self.storage!r}: write {' or '.join(get_args(Storage))}")
        parse_resources(self.resources)


@dataclass(frozen=True)
class RayCluster:
    """Cluster that carries trials out; `jobs` of them fit at a time."""

    ray: Any
    needs: Mapping[str, float]
    storage: Storage
    nodes: int
    jobs: int
    files: tuple[str, ...]

    def executor(self, directory: str | Path) -> Callable[[], Executor]:
        """Return what makes the executor of the trials in a directory."""
        return lambda: RayExecutor(self, Path(directory).expanduser().absolute())


@contextmanager
def ray_cluster(
    options: RayOptions, configs: Iterable[TrainConfig], plugins: Iterable[str] = ()
) -> Iterator[RayCluster]:
    """Context of a connection to a cluster that holds trials of these configurations."""
    configs = [config.with_absolute_paths() for config in configs]
    threads = max((config.groups.controls.torch_threads for config in configs), default=1)
    needs = {"cpus": float(threads), **parse_resources(options.resources)}
    check_resources(needs)
    files = dict.fromkeys(path for config in configs for path in files_of(config))
    files |= dict.fromkeys(path for path in map(_absolute, plugins) if path.endswith(".py"))
    with connected(options.address, options.cores) as ray:
        nodes = alive_nodes(ray)
        jobs = capacity(nodes, needs)
        yield RayCluster(ray, needs, options.storage, len(nodes), jobs, tuple(files))


class RayExecutor:
    """Carries out tasks on the nodes of a cluster."""

    def __init__(self, cluster: RayCluster, directory: Path) -> None:
        self._cluster, self._ray = cluster, cluster.ray
        self._returns_files = cluster.storage == "returned"
        self._tasks: dict[Any, tuple[Task, str]] = {}  # with its ticket, by reference
        self._stack = ExitStack()
        try:
            self._check = self._checked(directory)
            self._hub = self._start_hub()
        except BaseException:
            self._stack.close()
            raise
        self._sign = self._hub.stopped.remote()
        self._stopped = False
        self._carry_out = self._ray.remote(max_retries=0, scheduling_strategy="SPREAD")(
            carry_out
        ).options(**task_options(cluster.needs))

    def _checked(self, directory: Path) -> NodeCheck:
        check = NodeCheck(installed_versions(), self._cluster.files)
        if not self._returns_files:
            token = self._stack.enter_context(visible_token(directory))
            check = replace(check, directory=str(directory), token=token)
        check_nodes(self._ray, check)
        return replace(check, files=())  # a trial looks for its own

    def _start_hub(self) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        here = self._ray.get_runtime_context().get_node_id()
        hub = (
            self._ray.remote(Hub)
            .options(
                num_cpus=0,
                max_concurrency=_MAX_TRIALS,
                scheduling_strategy=NodeAffinitySchedulingStrategy(here, soft=False),
            )
            .remote()
        )
        self._stack.callback(self._ray.kill, hub)
        return hub

    def start(self, task: Task) -> None:
        task = replace(task, plugins=tuple(map(_absolute, task.plugins)))
        ticket = uuid4().hex
        own_files = tuple(
            path for path in self._cluster.files if path in (*task.plugins, *_texts(task.config))
        )
        assignment = Assignment(
            task.as_dict(),
            ticket,
            replace(self._check, files=own_files),
            str(Path.cwd()),
            self._returns_files,
        )
        self._tasks[self._carry_out.remote(assignment, self._hub)] = (task, ticket)

    def wait(self, seconds: float) -> list[Exit]:
        """Return the tasks that have ended."""
        references = [*self._tasks, *([] if self._stopped else [self._sign])]
        ready, _ = self._ray.wait(references, num_returns=1, timeout=seconds)
        if self._sign in ready:
            raise RunError(
                "the process that serves trials on other machines died; trials that ran are saved: "
                "the same command goes on"
            )
        if not ready:
            return []
        ready, _ = self._ray.wait(list(self._tasks), num_returns=len(self._tasks), timeout=0)
        return [self._exit(reference) for reference in ready]

    def _exit(self, reference: Any) -> Exit:
        task, _ = self._tasks.pop(reference)
        errors = self._ray.exceptions
        try:
            died: str = self._ray.get(reference)
        except errors.TaskCancelledError:
            died = ""  # before it began
        except (errors.NodeDiedError, errors.LocalRayletDiedError):
            died = "its node was lost"
        except errors.OutOfMemoryError:
            died = "its node ran out of memory"
        except errors.WorkerCrashedError:
            died = "its node, or Ray's process there, was lost"
        except Exception as error:  # of our own code there, which Ray hands on
            died = first_line(getattr(error, "cause", None) or error)
        return Exit(task.name, died)

    def stop(self) -> None:
        self._stopped = True
        begun = set(self._ray.get(self._hub.stop.remote()))
        for reference, (_, ticket) in self._tasks.items():
            if ticket not in begun:  # it waits for room, which may never come
                self._ray.cancel(reference)

    def close(self) -> None:
        """Let what runs save and end, then release the cluster."""
        try:
            with suppress(self._ray.exceptions.RayError):
                self._end()
        finally:
            self._stack.close()

    def _end(self) -> None:
        if not self._tasks:
            return
        self.stop()
        deadline = time.monotonic() + CLOSE_SECONDS
        while self._tasks and time.monotonic() < deadline:
            self.wait(1.0)
        for reference in self._tasks:
            self._ray.cancel(reference, force=True)


def _absolute(plugin: str) -> str:
    return str(Path(plugin).absolute()) if plugin.endswith(".py") else plugin


def _texts(value: Any) -> Iterator[str]:
    """Yield every text in a configuration."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _texts(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _texts(part)
