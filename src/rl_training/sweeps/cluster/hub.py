"""Actor on the driver's node: says when to stop, and takes the files that nodes return.

A task asks it for leave to begin, waits on `stopped` all the while, and hands back its ticket at the end. Only
the newest ticket of a trial may change files: a node that was given up may still be working.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from rl_training.runs.lock import RunLockedError
from rl_training.sweeps.cluster.receiver import RunReceiver

GO, STOP, LOCKED = "go", "stop", "locked"
OPERATIONS = (
    "tree", "read", "write", "link", "place", "place_step", "remove", "remove_step", "point", "report",
)  # fmt: skip


class Hub:
    """Keeps who is at work, on one event loop; files are read and written in threads."""

    def __init__(self) -> None:
        self._stopped = asyncio.Event()
        self._begun: set[str] = set()
        self._receivers: dict[str, tuple[str, RunReceiver]] = {}  # by name of the trial

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
            self._close(name)  # of a node that was given up
            try:
                receiver = RunReceiver(*map(Path, paths))
            except RunLockedError:
                return LOCKED
            self._receivers[name] = (ticket, receiver)
        self._begun.add(ticket)
        return GO

    async def files(self, ticket: str, name: str, operation: str, *arguments: Any) -> Any:
        """Carry out an operation of the receiver of a trial."""
        held, receiver = self._receivers.get(name, ("", None))
        if held != ticket or receiver is None or operation not in OPERATIONS:
            raise PermissionError(f"{name} has been given to another node")
        return await asyncio.to_thread(getattr(receiver, operation), *arguments)

    async def end(self, ticket: str, name: str) -> None:
        self._begun.discard(ticket)
        if self._receivers.get(name, ("",))[0] == ticket:
            self._close(name)

    def _close(self, name: str) -> None:
        _, receiver = self._receivers.pop(name, ("", None))
        if receiver is not None:
            receiver.close()
