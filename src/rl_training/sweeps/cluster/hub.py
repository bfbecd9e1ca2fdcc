"""Actor on the driver's node: says when to stop, and takes the files that nodes return.

A task asks it for leave to begin, waits on `stopped` all the while, and hands back its ticket at the end. Only
the newest ticket of a trial may change files: a node that was given up may still be working.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rl_training.runs.lock import RunLockedError
from rl_training.sweeps.cluster.receiver import RunReceiver

GO, STOP, LOCKED = "go", "stop", "locked"
OPERATIONS = (
    "tree", "read", "write", "link", "place", "place_step", "discard_step", "remove", "remove_step", "point",
    "report",
)  # fmt: skip


@dataclass(frozen=True)
class _Held:
    """Receiver of a trial, for the holder of a ticket."""

    ticket: str
    receiver: RunReceiver
    busy: asyncio.Lock = field(default_factory=asyncio.Lock)  # during an operation


class Hub:
    """Keeps who is at work, on one event loop; files are read and written in threads."""

    def __init__(self) -> None:
        self._stopped = asyncio.Event()
        self._begun: set[str] = set()
        self._receivers: dict[str, _Held] = {}  # by name of the trial

    async def stop(self) -> list[str]:
        """Let no task begin any more; returns the tickets of those that have."""
        self._stopped.set()
        return list(self._begun)

    async def stopped(self) -> None:
        """Return once all tasks are to stop."""
        await self._stopped.wait()

    async def begin(self, ticket: str, name: str, paths: tuple[str, str, str] | None) -> str:
        """Give leave to begin a trial; `paths` are its run, status and log if files are returned."""
        if self._stopped.is_set():
            return STOP
        if paths is not None:
            await self._close(name)  # of a node that was given up
            try:
                receiver = RunReceiver(*map(Path, paths))
            except RunLockedError:
                return LOCKED
            self._receivers[name] = _Held(ticket, receiver)
        self._begun.add(ticket)
        return GO

    async def files(self, ticket: str, name: str, operation: str, *arguments: Any) -> Any:
        """Carry out an operation of the receiver of a trial."""
        held = self._receivers.get(name)
        if held is None or held.ticket != ticket or operation not in OPERATIONS:
            raise PermissionError(f"{name} has been given to another node")
        async with held.busy:
            return await asyncio.to_thread(getattr(held.receiver, operation), *arguments)

    async def end(self, ticket: str, name: str) -> None:
        self._begun.discard(ticket)
        held = self._receivers.get(name)
        if held is not None and held.ticket == ticket:
            await self._close(name)

    async def _close(self, name: str) -> None:
        held = self._receivers.pop(name, None)
        if held is not None:
            async with held.busy:
                held.receiver.close()
