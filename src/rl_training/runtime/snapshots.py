"""A checkpoint in memory: the state at a step of which it is not known yet whether it is the best."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from rl_training.runtime.checkpointing import Checkpoint, write_checkpoint

_PREFIX = "held."


@dataclass(frozen=True)
class Snapshot:
    """Everything that a checkpoint of its step would hold, without the replay.

    A later checkpoint carries it along, so that a run that was killed in between can still write it.
    """

    manifest: dict[str, Any]
    tensors: dict[str, Tensor]

    @classmethod
    def of(cls, manifest: dict[str, Any], tensors: dict[str, Tensor]) -> Snapshot:
        """Copies, since training goes on."""
        kept = {
            name: tensor.detach().cpu().clone()
            for name, tensor in tensors.items()
            if not name.startswith("replay.")  # only a run's newest checkpoint has one
        }
        return cls(json.loads(json.dumps(manifest)), kept)

    @classmethod
    def carried_by(cls, checkpoint: Checkpoint) -> Snapshot | None:
        manifest = checkpoint.manifest.get("held")
        if manifest is None:
            return None
        found = {
            name.removeprefix(_PREFIX): tensor
            for name, tensor in checkpoint.tensors.items()
            if name.startswith(_PREFIX)
        }
        return cls(manifest, found)

    @property
    def step(self) -> int:
        return int(self.manifest["progress"]["global_step"])

    def networks(self) -> dict[str, Tensor]:
        return {k: value for k, value in self.tensors.items() if k.startswith("networks.")}

    def write(self, directory: Path) -> None:
        write_checkpoint(directory, self.manifest, self.tensors)

    def carry(self, manifest: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Add this to what a later checkpoint holds."""
        manifest["held"] = self.manifest
        tensors |= {f"{_PREFIX}{name}": tensor for name, tensor in self.tensors.items()}
