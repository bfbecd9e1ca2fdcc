"""What logged data is worth online: RLPD beside SAC alone, and offline policies that go on.

    python benchmarks/offline_to_online.py [--seeds 0,1,2] [--jobs 1] [--only PATTERN]

Each cell is one training, done once and kept in runs/offline_to_online/cells; run the command again to
fill what is missing. It writes docs/benchmarks/offline_to_online.md from the cells that are there.
"""

from __future__ import annotations

import argparse
import fnmatch
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cells import EPISODES, Result, listed_versions, read, run_all, save, table, versions

ROOT = Path(__file__).parents[1]
CELLS = ROOT / "runs" / "offline_to_online" / "cells"
PAGE = ROOT / "docs" / "benchmarks" / "offline_to_online.md"
SMALL = {"hidden_sizes": [64, 64], "batch_size": 64, "gamma": 0.98, "learning_starts": 200}
# title, configuration, overrides
ARMS: dict[str, tuple[str, dict[str, Any]]] = {
    "rlpd": ("rlpd/pendulum", {"total_timesteps": 3_000}),
    "sac": ("sac/pendulum", {"total_timesteps": 3_000, **SMALL}),
    "awac": ("awac/pendulum-finetune", {"offline_pretrain_updates": 1_000}),
    "iql": ("iql/pendulum-finetune", {"offline_pretrain_updates": 1_000}),
}
TARGETS = (-400, -200)


@dataclass(frozen=True)
class Cell:
    arm: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.arm}-{self.seed}"

    @property
    def path(self) -> Path:
        return CELLS / f"{self.name}.json"

    @property
    def config(self) -> dict[str, Any]:
        name, overrides = ARMS[self.arm]
        return {"name": name, **overrides, "seed": self.seed, "eval_interval": 250}


def run(cell: Cell) -> Result:
    from rl_training.api import algorithm

    config = dict(cell.config)
    name = config.pop("name")
    managed = algorithm(name.split("/")[0]).from_config(
        name, output_dir=str(CELLS.parent / "runs"), eval_episodes=10, **config
    )
    start = time.perf_counter()
    run_dir = managed.learn().run_dir
    with np.load(run_dir / "evaluations.npz") as saved:
        steps, returns = saved["steps"].tolist(), saved["returns"].mean(1).tolist()
    result = {
        "config": cell.config,
        "return_mean": managed.evaluate(num_episodes=EPISODES)["eval/return_mean"],
        "steps": steps,
        "returns": returns,
        "training_seconds": time.perf_counter() - start,
        "versions": versions("rl_training", "torch", "gymnasium", "numpy"),
    }
    save(cell.path, result)
    return result


def steps_to(result: Result, target: float) -> int | None:
    """The environment steps after which an evaluation first reached the target."""
    before = result["config"].get("offline_pretrain_updates", 0)
    for step, value in zip(result["steps"], result["returns"], strict=True):
        if value >= target:
            return int(step - before)
    return None


def by_seed(values: list[Any]) -> str:
    return ", ".join("not run" if value is None else str(value) for value in values)


def write_page(seeds: list[int]) -> None:
    found = {
        arm: [read(Cell(arm, seed).path, Cell(arm, seed).config) for seed in seeds] for arm in ARMS
    }
    rows = []
    for arm in ("rlpd", "sac"):
        cells = found[arm]
        row = [f"`{ARMS[arm][0]}`"]
        for target in TARGETS:
            row.append(
                by_seed([None if c is None else steps_to(c, target) or "never" for c in cells])
            )
        rows.append(
            [*row, by_seed([None if c is None else f"{c['return_mean']:.0f}" for c in cells])]
        )
    header = ["config", *(f"steps to {target}" for target in TARGETS), "after 3,000 steps"]
    further = [going_on(arm, found[arm]) for arm in ("awac", "iql")]
    curve = [curve_row(step, found) for step in range(500, 3_001, 500)]
    text = TEXT.format(
        seeds=", ".join(map(str, seeds)),
        episodes=EPISODES,
        steps=table(header, rows),
        curve=table(["environment steps", "RLPD", "SAC"], curve),
        further=table(["config", "offline", "after 4,000 steps online"], further),
        versions=listed_versions(c for cells in found.values() for c in cells if c is not None),
    )
    PAGE.write_text(text)


def going_on(arm: str, cells: list[Result | None]) -> list[str]:
    """The score when the offline part ends, and in the end."""
    offline = [None if c is None else f"{c['returns'][c['steps'].index(1_000)]:.0f}" for c in cells]
    online = [None if c is None else f"{c['return_mean']:.0f}" for c in cells]
    return [f"`{ARMS[arm][0]}`", by_seed(offline), by_seed(online)]


def curve_row(step: int, found: dict[str, list[Result | None]]) -> list[str]:
    row = [f"{step:,}"]
    for arm in ("rlpd", "sac"):
        values = [c["returns"][c["steps"].index(step)] for c in found[arm] if c is not None]
        row.append(f"{statistics.mean(values):.0f}" if values else "not run")
    return row


TEXT = """# Offline-to-online benchmark

<!-- not run: it trains for minutes, and writes this page -->
```bash
python benchmarks/offline_to_online.py --seeds 0,1,2
```

Pendulum-v1, with the built-in log `pendulum/mixed-v0`, whose own episodes return -608 on average. Entries are by
seed: {seeds}.

## RLPD beside SAC

Both have 64-64 networks, batches of 64, learning rate 1e-3, discount 0.98 and 200 random steps. RLPD has the log,
ten critics and twenty updates per step; SAC has two critics and one update. The target counts as reached at the
first evaluation (10 episodes, every 250 steps) that is not below it; the last column is the final policy over
{episodes} episodes.

{steps}

Mean over seeds of the evaluations on the way:

{curve}

## Offline policies that go on

The score of the offline policy after 1,000 updates (10 episodes), and of the final policy ({episodes} episodes).

{further}

"not run": no result yet. A MuJoCo task has not been run. Versions: {versions}.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", default="*", help="cells to train, e.g. 'rlpd-*'")
    arguments = parser.parse_args()
    seeds = [int(word) for word in arguments.seeds.split(",")]
    cells = [Cell(arm, seed) for seed in seeds for arm in ARMS]
    missing = [
        cell
        for cell in cells
        if fnmatch.fnmatch(cell.name, arguments.only) and read(cell.path, cell.config) is None
    ]
    failed = run_all(missing, run, arguments.jobs)
    write_page(seeds)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
