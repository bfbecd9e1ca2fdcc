"""Divergence: losses or networks that are not finite any more. It ends a run and is never saved."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save as save_tensors
from torch import Tensor

from rl_training.algorithms.base import Terms
from rl_training.config import OutputError, RunError
from rl_training.data.transitions.batch import Batch
from rl_training.files import write_bytes
from rl_training.runtime.loop.state import TrainerState

DEBUG_FOLDER = "debug"


class DivergedError(RunError):
    """Names step, metric and networks; the run adds which checkpoint is intact."""

    def __init__(
        self,
        algorithm: Any,
        step: int,
        updates: int,
        bad_metric: tuple[str, float] | None = None,
        batch: Path | None = None,
    ) -> None:
        reason = "" if bad_metric is None else "{} is {}".format(*bad_metric)
        networks = diverged_networks(algorithm)
        if networks:
            reason += f"{'; ' if reason else ''}not finite any more: {', '.join(networks)}"
        super().__init__(
            f"training diverged at step {step} (update {updates}): {reason}\n"
            "lower learning_rate or scale the rewards (reward_scale), and train again; "
            + ("--debug writes the batch that did it" if batch is None else f"the batch: {batch}")
        )


class DivergedRunError(RunError):
    """Divergence of a run, with the checkpoint that is intact; the run would diverge again from there."""


def diverged_networks(algorithm: Any) -> list[str]:
    """Networks with a parameter, or an optimizer moment of one, that is not finite."""
    children = algorithm.named_children() if hasattr(algorithm, "named_children") else ()
    optimizers = getattr(algorithm, "optimizers", {})
    return [
        name
        for name, module in children
        if not _all_finite(module.parameters()) or not _all_finite(_moments(optimizers.get(name)))
    ]


def _moments(optimizer: Any) -> list[Tensor]:
    if optimizer is None:
        return []
    return [
        value
        for state in optimizer.state.values()
        for value in state.values()
        if isinstance(value, Tensor)
    ]


def _all_finite(tensors: Iterable[Tensor]) -> bool:
    return all(bool(tensor.isfinite().all()) for tensor in tensors if tensor.is_floating_point())


def refuse_diverged(state: TrainerState) -> None:
    """Raise if a network is not finite, whatever the losses say."""
    if diverged_networks(state.algorithm):
        raise DivergedError(state.algorithm, state.global_step, state.update_count)


def non_finite(terms: Mapping[str, float]) -> tuple[str, float] | None:
    """Return the first metric that is not finite, and its value."""
    return next(((name, v) for name, v in terms.items() if not math.isfinite(v)), None)


class BatchInspector:
    """Looks at the terms of every update, and writes the batch of the first that are not finite.

    Waiting for the terms costs time, so it is for `--debug` only.
    """

    def __init__(self, state: TrainerState, run_dir: Path) -> None:
        self.state, self.folder = state, run_dir / DEBUG_FOLDER

    def __call__(self, batch: Batch, terms: Terms) -> None:
        bad = non_finite({name: float(value.mean()) for name, value in terms.items()})
        if bad is None:
            return
        updates = self.state.algorithm.update_count
        path = self.folder / f"batch_of_update_{updates}.safetensors"
        if self.folder.is_symlink():
            raise OutputError(f"{self.folder} is a link, which is not followed: remove it")
        self.folder.mkdir(exist_ok=True)
        fields = {name: value.cpu().clone() for name, value in batch.fields().items()}
        write_bytes(path, save_tensors(fields))
        raise DivergedError(self.state.algorithm, self.state.global_step, updates, bad, path)
