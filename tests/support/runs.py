"""Runs that crash at a chosen moment, and the comparison of two runs bit for bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from rl_training.runtime import Callback, TrainConfig, TrainerState, train


class Killed(BaseException):
    """Stands for a crash: nothing may catch it and tidy up."""


class KillAtUpdate(Callback):
    def __init__(self, update: int) -> None:
        self.update = update

    def on_update_end(self, state: TrainerState, terms: Any) -> None:
        if state.update_count == self.update:
            raise Killed


def tensors_of(checkpoint: Path) -> dict[str, torch.Tensor]:
    tensors: dict[str, torch.Tensor] = {}
    for path in sorted(checkpoint.rglob("*.safetensors")):
        name = "" if path.parent == checkpoint else f"{path.name}/"
        tensors |= {f"{name}{key}": value for key, value in load_file(path).items()}
    return tensors


def metrics_of(run_dir: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if not k.startswith("time/")} for row in rows]


def assert_same_run(first: Path, second: Path) -> None:
    expected, found = (
        tensors_of(first / "checkpoints/last"),
        tensors_of(second / "checkpoints/last"),
    )
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    assert metrics_of(first) == metrics_of(second)
    manifests = [
        json.loads((run / "checkpoints/last/manifest.json").read_text()) for run in (first, second)
    ]
    for key in ("progress", "callbacks", "algorithm", "spec", "reward_scale", "dataset"):
        assert manifests[0][key] == manifests[1][key], key
    assert (first / "checkpoints/best").resolve().name == (
        second / "checkpoints/best"
    ).resolve().name
    assert (first / "evaluations.npz").exists() == (second / "evaluations.npz").exists()
    if (first / "evaluations.npz").exists():
        with np.load(first / "evaluations.npz") as a, np.load(second / "evaluations.npz") as b:
            assert all(np.array_equal(a[key], b[key]) for key in a.files)
    header = [(run / "progress.csv").read_text().splitlines()[0] for run in (first, second)]
    assert header[0] == header[1]


class KillAtTick(Callback):
    """A crash after so many ticks, whether they collected or learned."""

    def __init__(self, tick: int | None) -> None:
        assert tick is not None
        self.left = tick

    def on_collect_end(self, state: TrainerState, env_steps: int) -> None:
        self._tick()

    def on_update_end(self, state: TrainerState, terms: Any) -> None:
        self._tick()

    def _tick(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise Killed


def killed_run(config: TrainConfig, update: int | None = None, *, tick: int | None = None) -> Path:
    """Return the run directory that a crash at this update, or after so many ticks, leaves behind."""
    crash = KillAtTick(tick) if update is None else KillAtUpdate(update)
    existing = set(Path(config.output_dir).glob("*"))
    with pytest.raises(Killed):
        train(config, callbacks=[crash])
    (run_dir,) = set(Path(config.output_dir).glob("*")) - existing
    return run_dir
