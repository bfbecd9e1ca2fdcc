"""How cost grows: with the size of the data, beyond memory, and with batch, members and width.

Data of 10^7 rows and more is mapped from disk by the package's own option, `dataset_in_memory: false`,
in a process that may not hold more memory than `LIMIT`. Rows are narrow, so that the largest file fits
on an ordinary disk.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.speed import ours
from benchmarks.speed.flops import sac_flops, td3_flops
from benchmarks.speed.problem import BATCH, HIDDEN, Problem, random_fields
from benchmarks.speed.timing import NotMeasuredError, Spread, interleave
from rl_training.data.packing.layout import RowLayout
from rl_training.runtime.run import Run

OBS_DIM, ACTION_DIM = 3, 1
ROW_BYTES = 4 * RowLayout(OBS_DIM, ACTION_DIM).width
SIZES = [10**4, 10**5, 10**6, 10**7, 10**8]
MAPPED_FROM = 10**7  # rows
LIMIT = 1_000_000_000  # bytes
BLOCK = 10**6  # rows that a file repeats: what they are does not matter for speed

Table = list[dict[str, Any]]


def measure(problem: Problem, directory: Path) -> dict[str, Any]:
    return {"data": _sizes(problem, directory), **_growth(problem)}


def _sizes(problem: Problem, directory: Path) -> dict[str, Any]:
    """Updates per second of TD3+BC by number of transitions."""
    if not sys.platform.startswith("linux"):
        raise NotMeasuredError("only Linux limits the memory of a process so")
    settings = problem.settings
    sizes = SIZES[:-1] if settings.quick else SIZES
    needed = 2 * sum(size for size in sizes if size >= MAPPED_FROM) * ROW_BYTES
    directory.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(directory).free
    if free < 1.5 * needed:
        raise NotMeasuredError(f"needs {1.5 * needed / 1e9:.0f} GB of disk, {free / 1e9:.0f} free")
    with tempfile.TemporaryDirectory(dir=directory, prefix="scale-") as place:
        files = {}
        for size in sizes:
            if size >= MAPPED_FROM:
                files[size] = f"{place}/{size}.npz"
                write_log(Path(files[size]), size)
        order = {
            "sizes": sizes,
            "files": files,
            "limit": LIMIT,
            "rounds": settings.rounds,
            "seconds": settings.seconds,
        }
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.speed.scale_worker", json.dumps(order)],
            env={**os.environ, "RL_TRAINING_CACHE": place},
            stdout=subprocess.PIPE,
            check=True,
        )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def write_log(path: Path, rows: int) -> None:
    """An .npz of this many transitions, written piece by piece."""
    block = random_fields(min(rows, BLOCK), OBS_DIM, ACTION_DIM)
    with zipfile.ZipFile(path, "w") as archive:
        for name, values in block.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                header = np.lib.format.header_data_from_array_1_0(values)
                np.lib.format.write_array_header_1_0(
                    file, {**header, "shape": (rows, *values.shape[1:])}
                )
                for _ in range(rows // len(values)):
                    file.write(values.tobytes())


def _growth(problem: Problem) -> dict[str, Table]:
    """Cost of an update by batch, members and width, and by the arithmetic that they ask for."""
    shorter = problem.settings.quick

    def td3_bc(**size: int) -> Run:
        return ours.offline_run("td3_bc", problem.dataset, **size)

    def redq(members: int) -> Run:
        options = {"num_critics": members, "subset_size": 2, "gradient_updates_per_step": 1}
        return ours.online_run("redq", problem.fields, options)

    batches = [64, 256, 1024] if shorter else [64, 128, 256, 512, 1024, 2048, 4096]
    members = [2, 5, 10] if shorter else [2, 5, 10, 20]
    widths = [64, 256, 512] if shorter else [64, 128, 256, 512, 1024]
    return {
        "batch": _table(
            problem,
            {size: partial(td3_bc, batch=size) for size in batches},
            lambda size: td3_flops(batch=size, hidden=HIDDEN),
        ),
        "members": _table(
            problem,
            {count: partial(redq, count) for count in members},
            lambda count: sac_flops(count, targets=2),
        ),
        "width": _table(
            problem,
            {width: partial(td3_bc, width=width) for width in widths},
            lambda width: td3_flops(batch=BATCH, hidden=(width, width)),
        ),
    }


def _table(
    problem: Problem, runs: dict[int, Callable[[], Run]], work: Callable[[int], float]
) -> Table:
    contestants = {str(value): ours.contestant(build(), unit=2) for value, build in runs.items()}
    settings = problem.settings
    timings = interleave(contestants, rounds=settings.rounds, seconds=settings.seconds)
    table = []
    for value in runs:
        spread = Spread(timings[str(value)].cpu)
        table.append(
            {
                "value": value,
                "us": spread.median,
                "quartiles": spread.quartiles,
                "mflop": work(value) / 1e6,
                "gflop_per_second": work(value) / spread.median / 1e3,
            }
        )
    return table
