"""What one log of mixed quality is worth, offline and as a start for learning online.

BC against TD3+BC on the log alone, three seeds each; then RLPD, which learns from the log and from
2,000 environment steps, against SAC, which has only those steps. Eight short runs, two at a time.

Run it with `make demo`, or `python examples/demo.py [output directory]`. The exit code is 1 if
TD3+BC does not beat both BC and the behaviour that made the log, on every seed, or RLPD not SAC.
"""

from __future__ import annotations

import multiprocessing
import shutil
import statistics
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

DATASET = "pendulum/mixed-v0"
SEEDS = (1, 2, 3)
STEPS = 2_000  # online
EPISODES = 50
# the longer runs first: both processes end together
SEEDS_OF = {
    "rlpd/pendulum": SEEDS[:1],
    "sac/pendulum": SEEDS[:1],
    "td3_bc/pendulum": SEEDS,
    "bc/pendulum": SEEDS,
}
# the same networks, batches and discount for both online learners
OVERRIDES: dict[str, dict[str, Any]] = {
    "rlpd/pendulum": {"total_timesteps": STEPS},
    "sac/pendulum": {
        "total_timesteps": STEPS,
        "hidden_sizes": [64, 64],
        "batch_size": 64,
        "gamma": 0.98,
        "learning_starts": 200,
    },
}


class Score(NamedTuple):
    config: str
    seed: int
    mean_return: float
    run_dir: Path


def train_and_score(config: str, seed: int, output_dir: str) -> Score:
    """One run, in a process of its own."""
    from rl_training.api import algorithm

    print(f"  {config:16} seed {seed}  training ...", flush=True)
    managed = algorithm(config.split("/")[0])
    algo = managed.from_config(
        config, seed=seed, output_dir=output_dir, **OVERRIDES.get(config, {})
    )
    run_dir = algo.learn().run_dir
    mean_return = algo.evaluate(num_episodes=EPISODES)["eval/return_mean"]
    print(f"  {config:16} seed {seed}  return {mean_return:.1f}", flush=True)
    return Score(config, seed, mean_return, run_dir)


def run_all(output_dir: str) -> dict[str, list[Score]]:
    """Scores per configuration, one for each seed."""
    spawn = multiprocessing.get_context("spawn")
    jobs = [(config, seed, output_dir) for config, seeds in SEEDS_OF.items() for seed in seeds]
    with ProcessPoolExecutor(max_workers=2, mp_context=spawn) as pool:
        scores = [run.result() for run in [pool.submit(train_and_score, *job) for job in jobs]]
    return {config: [score for score in scores if score.config == config] for config in SEEDS_OF}


def print_table(behaviour: float, scores: dict[str, list[Score]]) -> None:
    print(f"\nMean return over {EPISODES} episodes of Pendulum-v1; higher is better, 0 the limit\n")
    print(f"{'':20}" + "".join(f"{f'seed {seed}':>10}" for seed in SEEDS) + f"{'mean ± std':>18}")
    print(f"{'behaviour (log)':20}" + " " * 10 * len(SEEDS) + f"{behaviour:10.1f}")
    for title, config in (
        ("BC", "bc/pendulum"),
        ("TD3+BC", "td3_bc/pendulum"),
        (f"SAC, {STEPS:,} steps", "sac/pendulum"),
        (f"RLPD, log + {STEPS:,}", "rlpd/pendulum"),
    ):
        returns = [score.mean_return for score in scores[config]]
        if len(returns) == 1:
            print(f"{title:20}{returns[0]:10.1f}")
            continue
        spread = f"{statistics.mean(returns):.1f} ± {statistics.stdev(returns):.1f}"
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
    print(f"Learning from {DATASET}, {sum(map(len, SEEDS_OF.values()))} runs")
    log = load_transition_dataset("builtin", dataset_id=DATASET)  # built on first use
    behaviour = float(log.describe()["return"]["mean"])
    scores = run_all(output_dir)
    print_table(behaviour, scores)
    print_next_steps(scores)
    print(f"\n{time.perf_counter() - start:.0f} seconds")
    pairs = zip(scores["bc/pendulum"], scores["td3_bc/pendulum"], strict=True)
    if not all(td3_bc.mean_return > max(bc.mean_return, behaviour) for bc, td3_bc in pairs):
        print("TD3+BC is not above BC and the behaviour on every seed", file=sys.stderr)
        return 1
    if scores["rlpd/pendulum"][0].mean_return <= scores["sac/pendulum"][0].mean_return:
        print("RLPD is not above SAC after the same steps", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
