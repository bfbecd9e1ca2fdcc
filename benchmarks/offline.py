"""Every offline algorithm on the built-in datasets, three seeds each, into one table.

    python benchmarks/offline.py [--jobs 2] [--only td3_bc] [--seeds 1,2,3] [--output runs/offline]

A cell is `<algorithm>/<task>` for one seed: the packaged configuration is trained to its end and the
final policy scored. Each cell is saved when it is done; a second call runs only what is missing, or
what was run with another configuration than is packaged now.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from cells import (
    EPISODES,
    Result,
    listed_versions,
    mean_and_deviation,
    read,
    run_all,
    save,
    table,
    versions,
)

from rl_training.api.algorithms import managed_class
from rl_training.data import load_transition_dataset
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
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks" / "offline.md"


class Cell(NamedTuple):
    algo: str
    task: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.algo}/{self.task} seed {self.seed}"

    def path(self, output: Path) -> Path:
        return output / "cells" / f"{self.algo}-{self.task}-{self.seed}.json"

    def config(self, output: Path) -> TrainConfig:
        overrides = {"seed": self.seed, "output_dir": str(output / "runs"), "device": "cpu"}
        return load_config(f"{self.algo}/{self.task}", overrides)


def read_result(cell: Cell, output: Path) -> Result | None:
    """None if it has not been run, or not with the configuration that is packaged now."""
    return read(cell.path(output), cell.config(output).as_dict())


def run_cell(cell: Cell, output: Path) -> Result:
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
        "versions": versions("rl_training", "torch", "gymnasium", "numpy"),
    }
    save(cell.path(output), result)
    return result


def offline_algorithms() -> list[str]:
    return [spec.name for spec in list_algorithm_specs() if "offline" in spec.regimes]


def behaviour_returns() -> dict[str, float]:
    return {
        task: load_transition_dataset("builtin", dataset_id=name).describe()["return"]["mean"]
        for task, name in TASKS.items()
    }


def page_text(
    results: dict[Cell, Result],
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
        return mean_and_deviation([results.get(Cell(algo, task, seed)) for seed in seeds])

    rows = [["behaviour", *(f"{behaviour[task]:.1f}" for task in TASKS)]]
    rows += [[f"`{algo}`", *(entry(algo, task) for task in TASKS)] for algo in algorithms]
    header = ["algorithm", *(f"`{name}`" for name in TASKS.values())]
    seed_list = ",".join(map(str, seeds))
    return f"""# Offline benchmark

<!-- not run: it trains every algorithm, and writes this page -->
```bash
python benchmarks/offline.py --seeds {seed_list}
```

Each algorithm is trained with its packaged configuration `<algorithm>/<task>` to the end of its
budget. An entry is the mean return of the final policy over {EPISODES} episodes that training never saw: mean
± sample standard deviation over seeds {", ".join(map(str, seeds))}. No checkpoint is chosen by its score. "Behaviour" is the mean
return of the episodes in the dataset.

{table(header, rows)}

— : no packaged configuration for this dataset. "not run": there is one, but no result yet.

Higher is better. For scale: `pendulum/expert-v0` returns -162; pushing the mountain car along its speed
with a force of 0.2 returns 98.6; 500 is the limit of CartPole. What the datasets contain is said under [Built-in datasets](../data.md#built-in-datasets).
The configurations are small, made for minutes on one core: they rank algorithms at that budget, not in
general.

Versions: {listed_versions(results.values())}.
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
    missing = [cell for cell in chosen if read_result(cell, output) is None]
    print(f"{len(chosen) - len(missing)} cells done, {len(missing)} to run", flush=True)
    failed = run_all(missing, partial(run_cell, output=output), arguments.jobs)
    found = {cell: read_result(cell, output) for cell in cells}
    results = {cell: result for cell, result in found.items() if result is not None}
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page_text(results, algorithms, packaged, behaviour, seeds))
    print(f"{PAGE} written")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
