"""Options of verbs that carry out many runs: where, how many at a time, what each may take."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from rl_training import api
from rl_training.cli.console import note
from rl_training.config import ConfigError

JobsOption = Annotated[
    int | None,
    typer.Option(help="Runs at a time (default: the cores, or what the cluster holds).", min=1),
]
BackendOption = Annotated[
    str, typer.Option(help="Where to train: local, or ray for the machines of a Ray cluster.")
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        help="Ray cluster: host:port, or auto for the one that this machine has joined (default: "
        "RAY_ADDRESS, else Ray is started on this machine)."
    ),
]
ResourcesOption = Annotated[
    str | None,
    typer.Option(
        help="Resources of the cluster that a run takes, such as cpus=1,gpus=0.5,simulator=1 (default: "
        "a CPU for each of its torch_threads)."
    ),
]
StorageOption = Annotated[
    str | None,
    typer.Option(
        help="With ray: shared, if all machines see the output directory (default), or returned, to send "
        "runs back while they are trained."
    ),
]
RetriesOption = Annotated[
    int,
    typer.Option(
        help="How often a run that crashed is begun again, from its last checkpoint.", min=0
    ),
]
NiceOption = Annotated[int, typer.Option(help="Nice level of each run, 0 to 19.", min=0, max=19)]
MemoryOption = Annotated[
    str | None, typer.Option(help="Memory that each run may allocate, such as 4GB.")
]

_LARGEST = 2.0**62  # bytes, which the system takes as a limit


@dataclass(frozen=True)
class Backend:
    """Options that say where runs are carried out."""

    name: str = "local"
    address: str | None = None
    resources: str | None = None
    storage: str | None = None

    def __post_init__(self) -> None:
        if self.name not in ("local", "ray"):
            raise ConfigError(f"--backend {self.name!r}: write local or ray")
        given = {"address": self.address, "resources": self.resources, "storage": self.storage}
        if self.name == "local" and any(value is not None for value in given.values()):
            option = next(name for name, value in given.items() if value is not None)
            raise ConfigError(f"--{option} is for a cluster: add --backend ray")


@dataclass(frozen=True)
class Place:
    """Place that carries runs out: how many at a time, and by which executor."""

    jobs: int
    full_speed: int  # runs that do not wait for each other's cores
    executor: Callable[[Path], Any]  # makes `make_executor` of `RunOptions` for an output directory


@contextmanager
def place_of(
    backend: Backend, jobs: int | None, configs: Sequence[Any], plugins: Sequence[str] = ()
) -> Iterator[Place]:
    """Context of the place that the options name, for runs of these configurations."""
    if backend.name == "local":
        cores = api.machine.default_jobs()
        wanted = cores if jobs is None else jobs
        yield Place(wanted, min(wanted, cores), lambda _: api.LocalExecutor)
        return
    storage: Literal["shared", "returned"] = backend.storage or "shared"  # type: ignore[assignment]
    options = api.RayOptions(
        backend.address, backend.resources or "", storage, api.machine.default_jobs()
    )
    with api.ray_cluster(options, configs, plugins) as cluster:
        note(
            f"Ray has {_counted(cluster.nodes, 'node')}, with room for {_counted(cluster.jobs, 'run')} at a time"
        )
        wanted = cluster.jobs if jobs is None else jobs
        yield Place(wanted, min(wanted, cluster.jobs), cluster.executor)


def _counted(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def limits_of(nice: int, memory: str | None) -> api.Limits:
    return api.Limits(nice, _bytes(memory))


def _bytes(text: str | None) -> int | None:
    """Read `4GB`, `500MB` or a number of bytes."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)B?", text.strip(), re.IGNORECASE)
    size = 0 if match is None else float(match[1]) * 1000 ** " KMGT".index(match[2].upper() or " ")
    if not 1 <= size < _LARGEST:
        raise ConfigError(f"--memory {text!r}: write a size such as 4GB or 500MB")
    return int(size)
