"""Cost of a checkpoint by the size of its replay: seconds that training waits, and bytes written.

    python -m benchmarks.checkpoints

Between two checkpoints 1,000 transitions are collected (observations of 17 numbers, actions of 6),
with two critics and an actor of 256-256 and their optimizers beside them. `whole` is what writing
the complete replay each time would cost. Medians over ten checkpoints; every file is synced to disk.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save

from rl_training.data.replay.prioritized import PrioritizedReplayBuffer
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.files import write_bytes
from rl_training.runtime.checkpoints.format import Contents, write_checkpoint

OBS, ACTIONS, CAPACITY = 17, 6, 1_000_000


def fill(buffer: ReplayBuffer, count: int, rng: np.random.Generator) -> None:
    """Write rows as a thousand environments would, which is quicker than one by one."""
    layout = buffer.layout
    for start in range(0, count, 1000):
        rows = rng.standard_normal((min(1000, count - start), layout.width), np.float32)
        rows[:, layout.termination] = 0
        rows[:, layout.truncation] = rng.random(len(rows)) < 0.001
        buffer.add_rows(rows, np.arange(len(rows)))


def networks(rng: np.random.Generator) -> dict[str, torch.Tensor]:
    sizes = 3 * (OBS * 256 + 256 * 256 + 256 * ACTIONS)
    weights = torch.from_numpy(rng.standard_normal(sizes, np.float32))
    names = ("networks.all", "optimizers.first", "optimizers.second")
    return {name: weights.clone() for name in names}


def bytes_written(directory: Path, earlier: set[int]) -> int:
    """Sum the files of a checkpoint that no earlier one has."""
    files = [path.stat() for path in directory.rglob("*") if path.is_file()]
    new = [file for file in files if file.st_ino not in earlier]
    earlier.update(file.st_ino for file in files)
    return sum(file.st_size for file in new)


def measure(kind: type[ReplayBuffer], rows: int, folder: Path) -> dict[str, float]:
    rng = np.random.default_rng(0)
    buffer = kind(CAPACITY, OBS, ACTIONS, num_envs=1000)
    tensors = networks(rng)
    fill(buffer, rows, rng)
    seconds, sizes, whole, saved = [], [], [], None
    inodes: set[int] = set()
    for number in range(11):
        fill(buffer, 1000, rng)
        state = {f"replay.{key}": value for key, value in buffer.changing_state().items()}
        directory = folder / f"step_{number}"
        start = time.perf_counter()
        saved = write_checkpoint(directory, Contents({}, {**tensors, **state}, buffer), saved)
        seconds.append(time.perf_counter() - start)
        sizes.append(bytes_written(directory, inodes))
        if number % 5 == 1:
            start = time.perf_counter()
            write_bytes(folder / "whole", save(buffer.state_dict()))
            whole.append(time.perf_counter() - start)
    return {
        "seconds": statistics.median(seconds[1:]),
        "bytes": statistics.median(sizes[1:]),
        "whole": statistics.median(whole),
    }


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000, 999_000])
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    print(
        f"{'replay':<12} {'rows':>9}  {'seconds':>8}  {'MB written':>10}  {'whole replay, s':>15}"
    )
    results = []
    for kind, name in ((ReplayBuffer, "uniform"), (PrioritizedReplayBuffer, "prioritised")):
        for rows in options.rows:
            with tempfile.TemporaryDirectory() as folder:
                cost = measure(kind, rows, Path(folder))
            results.append({"replay": name, "rows": rows, **cost})
            print(
                f"{name:<12} {rows:>9,}  {cost['seconds']:>8.3f}  {cost['bytes'] / 1e6:>10.2f}  "
                f"{cost['whole']:>15.3f}"
            )
    return results


if __name__ == "__main__":
    main()
