"""What logged data is worth online: RLPD beside SAC alone, and offline policies that go on.

    python benchmarks/offline_to_online.py [--jobs 1] [--only PATTERN]

Makes the log of HalfCheetah, trains the cells of `offline_to_online.yaml`, as `rl-training benchmark` does, and
writes docs/benchmarks/offline_to_online.md. Run it again, from the root of the repository, to fill what is missing.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from cells import Result, read, save, versions
from offline_to_online_page import Arm, write_page

from rl_training.api import (
    RunOptions,
    Suite,
    SuiteRun,
    collect_dataset,
    evaluate,
    train,
    write_table,
)
from rl_training.experiment import load_config

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "benchmarks" / "offline_to_online.md"
OUTPUT = Path("runs/benchmarks/offline_to_online")
LOG = Path("runs/offline_to_online/halfcheetah-medium.npz")  # as the suite names it
LOG_STEPS = 20_000
# the policy that makes the log is trained for a while, then acts, exploring; one log for all seeds
LOGGER: dict[str, Any] = {
    "total_timesteps": 30_000,
    "hidden_sizes": [128, 128],
    "learning_rate": 1e-3,
    "learning_starts": 1_000,
    "seed": 100,
    "eval_interval": 1_000,  # the log does not depend on evaluations
    "eval_episodes": 3,
}


def make_log(suite: Suite) -> Result:
    """Write the log, as `rl-training data collect --checkpoint RUN --steps N --stochastic` would, or read its facts."""
    facts = LOG.with_suffix(".json")
    settings = {"logger": LOGGER, "steps": LOG_STEPS}
    known = read(facts, settings) if LOG.exists() else None
    if known is not None:
        return known
    start = time.perf_counter()
    config = load_config("sac/locomotion", {**LOGGER, "output_dir": str(LOG.parent / "runs")})
    run_dir = train(config).run_dir
    with np.load(run_dir / "evaluations.npz") as saved:
        curve = {"steps": saved["steps"].tolist(), "returns": saved["returns"].mean(1).tolist()}
    score = evaluate(run_dir, num_episodes=suite.config.episodes)["eval/return_mean"]
    dataset = collect_dataset(env_id=None, checkpoint=run_dir, steps=LOG_STEPS, deterministic=False)
    dataset.save(LOG)
    result = {
        "config": settings,
        "return_mean": score,
        "curve": curve,
        "log_return": dataset.describe()["return"],
        "training_seconds": time.perf_counter() - start,
        "versions": versions("rl_training", "torch", "gymnasium", "mujoco", "numpy"),
    }
    save(facts, result)
    return result


def arms_of(run: SuiteRun) -> dict[str, Arm]:
    """Results by environment and title: `Pendulum-v1 RLPD`."""
    return {
        f"{cell.column} {cell.row}": Arm(
            cell.row,
            cell.config,
            cell.trials[0].config.total_timesteps,
            [run.saved(trial) for trial in cell.trials],
        )
        for cell in run.cells
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", action="append", default=[], help="cells to train, e.g. 'RLPD*'")
    arguments = parser.parse_args()
    suite = Suite.load(ROOT / "benchmarks" / "offline_to_online.yaml")
    log = make_log(suite)
    run = SuiteRun.of(suite, OUTPUT)
    result = run.carry_out(RunOptions(arguments.jobs), arguments.only, print)
    write_table(result)
    logger = Arm("SAC that made the log", "sac/locomotion", LOGGER["total_timesteps"], [log])
    write_page(PAGE, suite.config, {**arms_of(run), "log": logger})
    for label, error in result.failed.items():
        print(f"failed: {label}: {error}")
    return 1 if result.failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
