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
from concurrent.futures import ProcessPoolExecutor, as_completed
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
    seconds: float


def train_and_score(config: str, seed: int, output_dir: str) -> Score:
    """One run; called in a process of its own."""
    from rl_training import BC, TD3BC

    print(f"  {config:16} seed {seed}  training", flush=True)
    start = time.perf_counter()
    managed = BC if config.startswith("bc/") else TD3BC
    algo = managed.from_config(config, seed=seed, output_dir=output_dir)
    run_dir = algo.learn().run_dir
    mean_return = algo.evaluate(num_episodes=EPISODES)["eval/return_mean"]
    return Score(config, seed, mean_return, run_dir, time.perf_counter() - start)


def behaviour_return() -> float:
    """Mean return of the logged episodes; the log is built on first use, before the runs need it."""
    from rl_training.data import load_transition_dataset

    return float(
        load_transition_dataset("builtin", dataset_id=DATASET).describe()["return"]["mean"]
    )


def run_all(output_dir: str) -> dict[str, list[Score]]:
    """Scores per configuration, in order of seeds."""
    scores: dict[str, list[Score]] = {config: [] for config in CONFIGS}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=2, mp_context=context) as pool:
        runs = [
            pool.submit(train_and_score, config, seed, output_dir)
            for config in CONFIGS
            for seed in SEEDS
        ]
        for done in as_completed(runs):
            score = done.result()
            scores[score.config].append(score)
            print(
                f"  {score.config:16} seed {score.seed}  return {score.mean_return:8.1f}"
                f"  ({score.seconds:.0f} s)",
                flush=True,
            )
    return {config: sorted(found, key=lambda score: score.seed) for config, found in scores.items()}


def print_table(behaviour: float, scores: dict[str, list[Score]]) -> None:
    print(f"\nMean return over {EPISODES} episodes of Pendulum-v1 (0 is the best there is)\n")
    print(f"{'':22}" + "".join(f"{f'seed {seed}':>10}" for seed in SEEDS) + f"{'mean ± std':>18}")
    print(f"{'behaviour (the log)':22}" + " " * 10 * len(SEEDS) + f"{behaviour:10.1f}")
    for title, config in (("BC", "bc/pendulum"), ("TD3+BC", "td3_bc/pendulum")):
        returns = [score.mean_return for score in scores[config]]
        spread = f"{statistics.mean(returns):.1f} ± {statistics.pstdev(returns):.1f}"
        print(f"{title:22}" + "".join(f"{value:10.1f}" for value in returns) + f"{spread:>18}")


def print_next_steps(scores: dict[str, list[Score]]) -> None:
    beside = Path(sys.executable).with_name("rl-training")
    here = Path.cwd()
    command = "rl-training" if shutil.which("rl-training") else str(beside)
    command = command.removeprefix(f"{here}/")
    print("\nRun directories")
    for found in scores.values():
        for score in found:
            print(f"  {score.run_dir}")
    run = scores["td3_bc/pendulum"][0].run_dir
    print("\nNext")
    for words in (
        f"predict {run} --obs '[1, 0, 0]'",
        f"eval {run} --episodes 20",
        f"resume {run} --total-timesteps 12000",
        f"data check builtin:{DATASET} --env Pendulum-v1",
        "explain td3_bc.bc_alpha",
    ):
        print(f"  {command} {words}")


def main() -> int:
    output_dir = sys.argv[1] if len(sys.argv) > 1 else "runs/demo"
    start = time.perf_counter()
    print(f"Behaviour data: {DATASET}")
    behaviour = behaviour_return()
    scores = run_all(output_dir)
    print_table(behaviour, scores)
    print_next_steps(scores)
    print(f"\n{time.perf_counter() - start:.0f} seconds")
    rows = zip(scores["bc/pendulum"], scores["td3_bc/pendulum"], strict=True)
    better = all(ours.mean_return > max(bc.mean_return, behaviour) for bc, ours in rows)
    if not better:
        print("TD3+BC is not above BC and the behaviour on every seed", file=sys.stderr)
    return 0 if better else 1


if __name__ == "__main__":
    sys.exit(main())
