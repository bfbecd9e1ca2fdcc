"""Every offline algorithm on the built-in datasets, three seeds each, into one table.

    python benchmarks/offline.py [--jobs 2] [--only td3_bc] [--seeds 1,2,3] [--output runs/offline]

A cell is `<algorithm>/<task>` for one seed: the packaged configuration is trained to its end and the
final policy scored. Each cell is saved when it is done; a second call runs only what is missing, or
what was run with another configuration than is packaged now.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch

import rl_training
from rl_training.api.managed import managed_class
from rl_training.data.builtin import load_builtin
from rl_training.experiment import (
    TrainConfig,
    get_algorithm_spec,
    list_algorithm_specs,
    load_config,
    packaged_configs,
)

TASKS = {
    "pendulum": "pendulum/mixed-v0",
    "mountaincar": "mountaincar/mixed-v0",
    "cartpole": "cartpole/mixed-v0",
}
EPISODES = 50
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks" / "offline.md"


class Cell(NamedTuple):
    algo: str
    task: str
    seed: int

    def path(self, output: Path) -> Path:
        return output / "cells" / f"{self.algo}-{self.task}-{self.seed}.json"

    def config(self, output: Path) -> TrainConfig:
        overrides = {"seed": self.seed, "output_dir": str(output / "runs"), "device": "cpu"}
        return load_config(f"{self.algo}/{self.task}", overrides)


def read_result(cell: Cell, output: Path) -> dict[str, Any] | None:
    """None if it has not been run, or not with the configuration that is packaged now."""
    path = cell.path(output)
    if not path.exists():
        return None
    result: dict[str, Any] = json.loads(path.read_text())
    return result if result["config"] == cell.config(output).as_dict() else None


def run_cell(cell: Cell, output: Path) -> dict[str, Any]:
    """Train and score, in a process of its own."""
    torch.set_num_threads(1)
    algo = managed_class(get_algorithm_spec(cell.algo))(cell.config(output))
    start = time.perf_counter()
    reason = algo.learn().stop_reason
    if reason != "total_timesteps":  # a signal ends training early but in good order
        raise RuntimeError(f"training ended early ({reason}); no score")
    seconds = time.perf_counter() - start
    metrics = algo.evaluate(num_episodes=EPISODES)
    result = {
        **cell._asdict(),
        "return_mean": metrics["eval/return_mean"],
        "return_std": metrics["eval/return_std"],
        "episodes": EPISODES,
        "training_seconds": round(seconds, 1),
        "config": algo.config.as_dict(),
        "versions": versions(),
    }
    save(cell.path(output), json.dumps(result, indent=2) + "\n")
    return result


def versions() -> dict[str, str]:
    modules = (rl_training, torch, gym, np)
    return {"python": platform.python_version()} | {m.__name__: m.__version__ for m in modules}


def save(path: Path, text: str) -> None:
    """In one step: an interrupted benchmark leaves no half of a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}.part")
    part.write_text(text)
    part.replace(path)


def run_missing(cells: Sequence[Cell], output: Path, jobs: int) -> int:
    """Run what has no result yet; returns how many cells failed."""
    missing = [cell for cell in cells if read_result(cell, output) is None]
    print(f"{len(cells) - len(missing)} cells done, {len(missing)} to run", flush=True)
    failed = 0
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=jobs, mp_context=spawn) as pool:
        running = {pool.submit(run_cell, cell, output): cell for cell in missing}
        try:
            for future in as_completed(running):
                failed += not report(running[future], future)
        except KeyboardInterrupt:  # safe at any moment: finished cells are saved
            for process in multiprocessing.active_children():
                process.kill()
            raise
    return failed


def report(cell: Cell, future: Future[dict[str, Any]]) -> bool:
    """Print what became of a cell; whether it has a score."""
    name = f"{cell.algo}/{cell.task} seed {cell.seed}"
    error = future.exception()
    if error is not None:
        print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return False
    result = future.result()
    print(f"{name}: {result['return_mean']:.1f} ({result['training_seconds']:.0f} s)", flush=True)
    return True


def offline_algorithms() -> list[str]:
    return [spec.name for spec in list_algorithm_specs() if "offline" in spec.regimes]


def behaviour_returns() -> dict[str, float]:
    return {task: load_builtin(name).describe()["return"]["mean"] for task, name in TASKS.items()}


def page_text(
    results: dict[Cell, dict[str, Any]],
    algorithms: Iterable[str],
    packaged: Iterable[str],
    behaviour: dict[str, float],
    seeds: Sequence[int],
) -> str:
    """The page: a row per algorithm, a column per dataset."""
    configs = set(packaged)

    def entry(algo: str, task: str) -> str:
        if f"{algo}/{task}" not in configs:
            return "—"
        found = [results.get(Cell(algo, task, seed)) for seed in seeds]
        returns = [result["return_mean"] for result in found if result is not None]
        if not returns:
            return "not run"
        text = f"{statistics.mean(returns):.1f} ± {statistics.pstdev(returns):.1f}"
        return text if len(returns) == len(seeds) else f"{text} ({len(returns)} of {len(seeds)})"

    rows = [["behaviour", *(f"{behaviour[task]:.1f}" for task in TASKS)]]
    rows += [[f"`{algo}`", *(entry(algo, task) for task in TASKS)] for algo in algorithms]
    header = ["algorithm", *(f"`{name}`" for name in TASKS.values())]
    table = "\n".join("| " + " | ".join(row) + " |" for row in [header, *rows])
    table = table.replace("\n", "\n|" + "---|" * len(header) + "\n", 1)
    used = sorted({json.dumps(result["versions"]) for result in results.values()})
    listed = "; ".join(
        ", ".join(f"{name} {version}" for name, version in json.loads(text).items())
        for text in used
    )
    seed_list = ",".join(map(str, seeds))
    return f"""# Offline benchmark

<!-- not run: it trains every algorithm, and writes this page -->
```bash
python benchmarks/offline.py --seeds {seed_list}
```

Each algorithm is trained with its packaged configuration `<algorithm>/<task>` to the end of its
budget. An entry is the mean return of the final policy over {EPISODES} episodes that training never saw: mean
± standard deviation over seeds {", ".join(map(str, seeds))}. No checkpoint is chosen by its score. "Behaviour" is the mean
return of the episodes in the dataset.

{table}

— : no packaged configuration for this dataset. "not run": there is one, but no result yet.

Higher is better. For scale: `pendulum/expert-v0` returns -162; pushing the mountain car along its speed
with a force of 0.2 returns 98.6; 500 is the limit of CartPole. What the datasets contain is said under [Built-in datasets](../data.md#built-in-datasets).
The configurations are small, made for minutes on one core: they rank algorithms at that budget, not in
general.

Versions: {listed or "no results yet"}.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("runs/offline"))
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--only", action="append", metavar="ALGO", help="may be repeated")
    parser.add_argument("--task", action="append", choices=TASKS, help="may be repeated")
    parser.add_argument("--seeds", default="1,2,3")
    arguments = parser.parse_args()
    output = arguments.output.absolute()
    seeds = [int(seed) for seed in arguments.seeds.split(",")]
    algorithms, packaged = offline_algorithms(), packaged_configs()
    behaviour = behaviour_returns()  # built here, once, before processes would do it together
    cells = [
        Cell(algo, task, seed)
        for task in TASKS
        for algo in algorithms
        for seed in seeds
        if f"{algo}/{task}" in packaged
    ]
    chosen = [
        cell
        for cell in cells
        if cell.algo in (arguments.only or algorithms) and cell.task in (arguments.task or TASKS)
    ]
    failed = run_missing(chosen, output, arguments.jobs)
    found = {cell: read_result(cell, output) for cell in cells}
    results = {cell: result for cell, result in found.items() if result is not None}
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page_text(results, algorithms, packaged, behaviour, seeds))
    print(f"{PAGE} written")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
