"""Behaviour cloning against TD3+BC on one log of mixed quality: six short runs, two at a time.

Run it with `make demo`, or `python examples/demo.py [output directory]`. The exit code is 1 if
TD3+BC does not beat both BC and the behaviour that made the log, on every seed.
"""

from __future__ import annotations

import multiprocessing
import shutil
import statistics
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

DATASET = "pendulum/mixed-v0"
CONFIGS = ("td3_bc/pendulum", "bc/pendulum")  # the longer runs first: both processes end together
SEEDS = (1, 2, 3)
EPISODES = 50


class Score(NamedTuple):
    config: str
    seed: int
    mean_return: float
    run_dir: Path


def train_and_score(config: str, seed: int, output_dir: str) -> Score:
    """One run, in a process of its own."""
    from rl_training import BC, TD3BC

    print(f"  {config:16} seed {seed}  training ...", flush=True)
    managed = BC if config.startswith("bc/") else TD3BC
    algo = managed.from_config(config, seed=seed, output_dir=output_dir)
    run_dir = algo.learn().run_dir
    mean_return = algo.evaluate(num_episodes=EPISODES)["eval/return_mean"]
    print(f"  {config:16} seed {seed}  return {mean_return:.1f}", flush=True)
    return Score(config, seed, mean_return, run_dir)


def run_all(output_dir: str) -> dict[str, list[Score]]:
    """Scores per configuration, one for each seed."""
    spawn = multiprocessing.get_context("spawn")
    jobs = [(config, seed, output_dir) for config in CONFIGS for seed in SEEDS]
    with ProcessPoolExecutor(max_workers=2, mp_context=spawn) as pool:
        scores = [run.result() for run in [pool.submit(train_and_score, *job) for job in jobs]]
    return {config: [score for score in scores if score.config == config] for config in CONFIGS}


def print_table(behaviour: float, scores: dict[str, list[Score]]) -> None:
    print(f"\nMean return over {EPISODES} episodes of Pendulum-v1; higher is better, 0 the limit\n")
    print(f"{'':20}" + "".join(f"{f'seed {seed}':>10}" for seed in SEEDS) + f"{'mean ± std':>18}")
    print(f"{'behaviour (log)':20}" + " " * 10 * len(SEEDS) + f"{behaviour:10.1f}")
    for title, config in (("BC", "bc/pendulum"), ("TD3+BC", "td3_bc/pendulum")):
        returns = [score.mean_return for score in scores[config]]
        spread = f"{statistics.mean(returns):.1f} ± {statistics.pstdev(returns):.1f}"
        print(f"{title:20}" + "".join(f"{value:10.1f}" for value in returns) + f"{spread:>18}")


def print_next_steps(scores: dict[str, list[Score]]) -> None:
    print("\nRuns", *(f"  {s.run_dir}" for runs in scores.values() for s in runs), sep="\n")
    run = scores["td3_bc/pendulum"][0].run_dir
    beside = Path(sys.executable).with_name("rl-training")
    command = "rl-training" if shutil.which("rl-training") else str(beside)
    print("\nNext")
    for words in (
        f"predict {run} --obs '[1, 0, 0]'",
        f"eval {run} --episodes 20",
        f"resume {run} --total-timesteps 12000",
        f"data check builtin:{DATASET} --env Pendulum-v1",
        "explain td3_bc.bc_alpha",
    ):
        print(f"  {command.removeprefix(f'{Path.cwd()}/')} {words}")


def main() -> int:
    from rl_training.data import load_transition_dataset

    start = time.perf_counter()
    output_dir = sys.argv[1] if len(sys.argv) > 1 else "runs/demo"
    print(f"Learning from {DATASET}, {len(CONFIGS) * len(SEEDS)} runs")
    log = load_transition_dataset("builtin", dataset_id=DATASET)  # built on first use
    behaviour = float(log.describe()["return"]["mean"])
    scores = run_all(output_dir)
    print_table(behaviour, scores)
    print_next_steps(scores)
    print(f"\n{time.perf_counter() - start:.0f} seconds")
    pairs = zip(scores["bc/pendulum"], scores["td3_bc/pendulum"], strict=True)
    if all(td3_bc.mean_return > max(bc.mean_return, behaviour) for bc, td3_bc in pairs):
        return 0
    print("TD3+BC is not above BC and the behaviour on every seed", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
