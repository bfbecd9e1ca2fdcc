"""A process with little memory that trains on data of several sizes; prints JSON.

The limit is on what the process holds itself (RLIMIT_DATA): a mapped file counts as the system's cache.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.speed import ours
from benchmarks.speed.problem import BATCH, HIDDEN, random_fields
from benchmarks.speed.scale import ACTION_DIM, OBS_DIM, ROW_BYTES
from benchmarks.speed.timing import interleave
from rl_training.data import TransitionDataset, load_transition_dataset
from rl_training.runtime import TrainConfig
from rl_training.runtime.assemble import new_run
from rl_training.runtime.run import Run


def main() -> None:
    order = json.loads(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_DATA, (order["limit"], order["limit"]))
    torch.set_num_threads(1)
    contestants, opened = {}, {}
    for size in order["sizes"]:
        start = time.perf_counter()
        path = order["files"].get(str(size))
        run = _in_memory(size) if path is None else _mapped(path)
        opened[size] = time.perf_counter() - start
        contestants[str(size)] = ours.contestant(run, unit=2)
    timings = interleave(contestants, rounds=order["rounds"], seconds=order["seconds"])
    table = [
        {
            "transitions": size,
            "mapped": str(size) in order["files"],
            "gigabytes": size * ROW_BYTES / 1e9,
            "opening_seconds": opened[size],
            "us": timings[str(size)].microseconds,
            "cpu_us": timings[str(size)].cpu,
            "wall_us": timings[str(size)].wall,
        }
        for size in order["sizes"]
    ]
    largest = order["files"][str(max(order["sizes"]))]
    report = {
        "limit": order["limit"],
        "sizes": table,
        "memory": _memory(),
        "held_in_memory": _try_in_memory(largest),
    }
    print(json.dumps(report))


def _in_memory(rows: int) -> Run:
    dataset = TransitionDataset.from_dict(random_fields(rows, OBS_DIM, ACTION_DIM))
    return ours.offline_run("td3_bc", dataset)


def _mapped(path: str) -> Run:
    options = {
        "dataset_kind": "npz",
        "dataset_path": path,
        "dataset_in_memory": False,
        "action_low": -1.0,
        "action_high": 1.0,
        "batch_size": BATCH,
        "hidden_sizes": HIDDEN,
    }
    return new_run(
        TrainConfig(algo="td3_bc", total_timesteps=ours.FOREVER, device="cpu", algo_kwargs=options)
    )


def _try_in_memory(path: str) -> dict[str, str] | None:
    """The error that comes of the same file without mapping it, if one does."""
    try:
        load_transition_dataset("npz", dataset_path=path)
    except (MemoryError, RuntimeError) as error:  # torch raises the latter
        return {"error": type(error).__name__, "message": str(error).partition("\n")[0]}
    return None


def _memory() -> dict[str, Any]:
    """What the process holds, in bytes: its own memory, and mapped pages that are in the cache."""
    status = dict(
        line.split(":", 1)
        for line in Path("/proc/self/status").read_text().splitlines()
        if ":" in line
    )
    return {
        name: int(status[key].split()[0]) * 1024
        for name, key in {"own": "RssAnon", "mapped": "RssFile", "limited": "VmData"}.items()
        if key in status
    }


if __name__ == "__main__":
    main()
