"""Checkpoints of one run: saved, pinned, pruned and read back."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from rl_training.runs.layout import STEP_PREFIX, step_directories
from rl_training.runs.placing import point
from rl_training.runtime.checkpoints.directories import BEST, LAST
from rl_training.runtime.checkpoints.format import (
    Contents,
    drop_older_replays,
    read_checkpoint,
    write_checkpoint,
)
from rl_training.runtime.checkpoints.segments import SavedReplay


class Checkpoints:
    """The `checkpoints/` directory of a run.

    A pinned step must have a checkpoint, and pruning spares it. Whoever needs a step pins it under
    a name of its own: "best" for the best score, "good" for the policy to roll back to.
    """

    def __init__(
        self,
        directory: Path,
        contents: Callable[[], Contents],
        keep: int | None = None,
        replay: SavedReplay | None = None,
    ) -> None:
        self.directory = directory
        self.contents = contents  # captures the run as it is now
        self.keep = keep  # how many of the newest survive pruning; None for all
        self.pinned: dict[str, int] = {}
        self.replay = replay  # of the newest checkpoint; its rows need not be written again
        self.outdated = False  # networks were exchanged after the last save

    def has(self, step: int) -> bool:
        return self._path(step).exists()

    def save(self, step: int) -> None:
        """Write a checkpoint of this moment and let `last` point to it."""
        self.replay = write_checkpoint(self._path(step), self.contents(), self.replay)
        self.outdated = False
        point(self.directory, LAST, step)
        drop_older_replays(self.directory)

    def networks_at(self, step: int) -> dict[str, Tensor]:
        """Read the networks of an earlier checkpoint."""
        return read_checkpoint(self._path(step), policy_only=True).tensors

    def lacks_pinned(self) -> bool:
        """Tell whether a pinned step has no checkpoint yet."""
        return not all(self.has(step) for step in self.pinned.values())

    def point_best(self) -> None:
        """Let `best` point to the step pinned under that name."""
        if BEST in self.pinned:
            point(self.directory, BEST, self.pinned[BEST])

    def prune(self) -> None:
        """Delete all but the newest `keep` checkpoints and the pinned ones."""
        if self.keep is None:
            return
        spared = {self._path(step) for step in self.pinned.values()}
        for path in step_directories(self.directory)[: -self.keep]:
            if path not in spared:
                shutil.rmtree(path)

    def _path(self, step: int) -> Path:
        return self.directory / f"{STEP_PREFIX}{step}"
