"""What logged data is worth online: RLPD beside SAC alone, and offline policies that go on.

    python benchmarks/offline_to_online.py [--seeds 0,1,2] [--jobs 1] [--only PATTERN]

Each cell is one training, done once and kept in runs/offline_to_online/cells; run the command again to
fill what is missing. The log of HalfCheetah is made like a cell, before those that need it. The command writes
docs/benchmarks/offline_to_online.md from the cells that are there.
"""

from __future__ import annotations

import argparse
import fnmatch
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from cells import EPISODES, Result, read, run_all, save, versions
from offline_to_online_page import Arm, write_page

if TYPE_CHECKING:
    from rl_training.api import ManagedAlgorithm

ROOT = Path(__file__).parents[1]
OUTPUT = ROOT / "runs" / "offline_to_online"
PAGE = ROOT / "docs" / "benchmarks" / "offline_to_online.md"

PENDULUM = {"eval_interval": 250, "eval_episodes": 10}
SMALL = {"hidden_sizes": [64, 64], "batch_size": 64, "gamma": 0.98, "learning_starts": 200}
GOING_ON = {"total_timesteps": 4_000, "offline_pretrain_updates": 1_000}
CHEETAH = {"eval_interval": 500, "eval_episodes": 5}
NARROW = {"hidden_sizes": [128, 128], "learning_rate": 1e-3, "learning_starts": 1_000}
# title, configuration, overrides
ARMS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "cheetah-rlpd": ("RLPD", "rlpd/locomotion-small", {"total_timesteps": 6_000, **CHEETAH}),
    "cheetah-alone": (
        "RLPD without the log",
        "rlpd/locomotion-small",
        {"total_timesteps": 6_000, **CHEETAH, "offline_batch_ratio": 0},
    ),
    "cheetah-sac": ("SAC", "sac/locomotion", {"total_timesteps": 20_000, **CHEETAH, **NARROW}),
    "rlpd": ("RLPD", "rlpd/pendulum", {"total_timesteps": 3_000, **PENDULUM}),
    "sac": ("SAC", "sac/pendulum", {"total_timesteps": 3_000, **PENDULUM, **SMALL}),
    "awac": ("AWAC", "awac/pendulum-finetune", {**GOING_ON, **PENDULUM}),
    "iql": ("IQL", "iql/pendulum-finetune", {**GOING_ON, **PENDULUM}),
}
LOGGER: dict[str, Any] = {
    "name": "sac/locomotion",
    "total_timesteps": 30_000,
    **NARROW,
    "seed": 100,
}


@dataclass(frozen=True)
class Log:
    """HalfCheetah's log: a policy is trained for a while, then acts, exploring; one for all seeds."""

    name: ClassVar[str] = "cheetah-log"
    path: ClassVar[Path] = OUTPUT / "cells" / "cheetah-log.json"
    data: ClassVar[Path] = OUTPUT / "halfcheetah-medium.npz"
    config: ClassVar[dict[str, Any]] = {"logger": LOGGER, "steps": 20_000}

    def read(self) -> Result | None:
        return read(self.path, self.config) if self.data.exists() else None


@dataclass(frozen=True)
class Cell:
    arm: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.arm}-{self.seed}"

    @property
    def path(self) -> Path:
        return OUTPUT / "cells" / f"{self.name}.json"

    @property
    def needs_log(self) -> bool:
        return self.arm in ("cheetah-rlpd", "cheetah-alone")

    @property
    def config(self) -> dict[str, Any]:
        _, name, overrides = ARMS[self.arm]
        log = {"log": Log.config} if self.needs_log else {}
        return {"name": name, **overrides, "seed": self.seed, **log}

    def read(self) -> Result | None:
        return read(self.path, self.config)


def learner(config: dict[str, Any]) -> ManagedAlgorithm:
    from rl_training.api import algorithm

    overrides = dict(config)
    name = overrides.pop("name")
    if overrides.pop("log", None) is not None:
        overrides |= {"dataset_kind": "npz", "dataset_id": None, "dataset_path": str(Log.data)}
    managed = algorithm(name.split("/")[0])
    return managed.from_config(name, output_dir=str(OUTPUT / "runs"), **overrides)


def run(cell: Cell | Log) -> Result:
    start = time.perf_counter()
    result = make_log() if isinstance(cell, Log) else train(cell.config)[0]
    result = {
        "config": cell.config,
        **result,
        "training_seconds": time.perf_counter() - start,
        "versions": versions("rl_training", "torch", "gymnasium", "mujoco", "numpy"),
    }
    save(cell.path, result)
    return result


def train(config: dict[str, Any]) -> tuple[Result, Path]:
    """The scores, and the run that they are of."""
    managed = learner(config)
    run_dir = managed.learn().run_dir
    with np.load(run_dir / "evaluations.npz") as saved:
        steps, returns = saved["steps"].tolist(), saved["returns"].mean(1).tolist()
    score = managed.evaluate(num_episodes=EPISODES)["eval/return_mean"]
    return {"return_mean": score, "steps": steps, "returns": returns}, run_dir


def make_log() -> Result:
    """What `rl-training data collect --checkpoint RUN --steps N --stochastic` writes."""
    from rl_training.runtime.collect import collect_dataset

    evaluation = {"eval_interval": 1_000, "eval_episodes": 3}  # the log does not depend on it
    result, run_dir = train({**Log.config["logger"], **evaluation})
    steps = Log.config["steps"]
    dataset = collect_dataset(env_id=None, checkpoint=run_dir, steps=steps, deterministic=False)
    dataset.save(Log.data)
    return {**result, "log_return": dataset.describe()["return"]}


def arm_results(arm: str, seeds: list[int]) -> Arm:
    title, name, overrides = ARMS[arm]
    results = [Cell(arm, seed).read() for seed in seeds]
    return Arm(title, name, overrides["total_timesteps"], results)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", default="*", help="cells to train, e.g. 'rlpd-*'")
    arguments = parser.parse_args()
    seeds = [int(word) for word in arguments.seeds.split(",")]
    cells = [Cell(arm, seed) for seed in seeds for arm in ARMS]
    wanted = [cell for cell in cells if fnmatch.fnmatch(cell.name, arguments.only)]
    missing = [cell for cell in wanted if cell.read() is None]
    failed = 0
    if Log().read() is None and any(cell.needs_log for cell in missing):
        failed += run_all([Log()], run, 1)
    failed += run_all(missing, run, arguments.jobs)
    arms = {arm: arm_results(arm, seeds) for arm in ARMS}
    log = Arm("SAC that made the log", LOGGER["name"], LOGGER["total_timesteps"], [Log().read()])
    write_page(PAGE, seeds, {**arms, Log.name: log})
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
