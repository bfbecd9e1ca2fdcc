"""Interface between the driver of a sweep and what carries its trials out: processes here, or a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Protocol

SAVE_SECONDS = 120.0  # for a task that is asked to end to save a checkpoint


@dataclass(frozen=True)
class Limits:
    """Share of a machine that one trial gets."""

    nice: int = 0
    memory: int | None = None  # bytes that its process may allocate


@dataclass(frozen=True)
class Judging:
    """Estimate of a trained policy from a log, made in the process that trained it."""

    dataset: str  # as commands name it
    gamma: float
    held_out: bool
    updates: int  # of every fit
    output_dir: str  # of the fits, which trials share


@dataclass(frozen=True)
class Task:
    """One process's work on one trial: begin its run, or go on with it.

    The same task may be carried out again after a crash: the run goes on from its last checkpoint.
    """

    name: str
    config: Mapping[str, Any]
    run_dir: str
    status: str  # path of the trial's status file
    log: str  # path of the file that takes what the process prints
    plugins: tuple[str, ...] = ()
    attempt: int = 1
    pause_at: int | None = None  # step after whose evaluation the run is saved and the process ends
    limits: Limits = field(default_factory=Limits)
    debug: bool = False
    judging: Judging | None = None  # after training

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Task:
        """Take back the values of `as_dict`, also after they were JSON."""
        known = {entry.name for entry in fields(cls)}
        chosen = {key: value for key, value in values.items() if key in known}
        judging = chosen.get("judging")
        return cls(
            **{
                **chosen,
                "plugins": tuple(values["plugins"]),
                "limits": Limits(**values["limits"]),
                "judging": None if judging is None else Judging(**judging),
            }
        )


@dataclass(frozen=True)
class Exit:
    """End of a task's process. Its status file says how far it came, unless it died."""

    name: str
    died: str = ""  # how, in words; empty if the process ended by itself


class Executor(Protocol):
    """Carries out tasks; the driver asks for no more at a time than it wants to run side by side.

    The driver's loop: `start` tasks, `wait` for exits, `start` others in their place; at the end, or after
    an error, `close`. `stop` makes every task save its run and end soon; their exits still come.
    """

    def start(self, task: Task) -> None:
        """Begin a task; returns at once."""

    def wait(self, seconds: float) -> list[Exit]:
        """Return the tasks that have ended since the last call, after at most so many seconds."""

    def stop(self) -> None:
        """Ask all running tasks to save a checkpoint and to end."""

    def close(self) -> None:
        """End what still runs, and release everything."""
