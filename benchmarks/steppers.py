"""What the steppers cost: compiled losses beside eager ones, and stacked seeds beside single ones.

    python benchmarks/steppers.py compiled --algos td3_bc,sac --widths 64,256
    python benchmarks/steppers.py stacked --algos td3_bc --widths 32,64,128,256 --seeds 1,2,4,8

CPU time per update and seed, sampling included, in one thread; contestants take turns.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import torch
from interleaved import interleave, print_comparison

from rl_training.algorithms import Algorithm, get_algorithm_spec
from rl_training.data import TransitionDataset
from rl_training.runtime.experience import Offline, StackedOffline
from rl_training.runtime.memory import keep_freed_memory
from rl_training.runtime.stacking import SeedStack
from rl_training.runtime.steppers import CompiledStepper
from rl_training.spec import ProblemSpec

OBS_DIM, ACTION_DIM, ROWS = 17, 6, 100_000
SPEC = ProblemSpec(OBS_DIM, "continuous", ACTION_DIM, (-1.0,) * ACTION_DIM, (1.0,) * ACTION_DIM)


def random_data() -> TransitionDataset:
    rng = np.random.default_rng(0)
    ends = np.arange(1, ROWS + 1) % 1000 == 0
    fields = {
        "obs": rng.standard_normal((ROWS, OBS_DIM), np.float32),
        "actions": rng.uniform(-1, 1, (ROWS, ACTION_DIM)).astype(np.float32),
        "rewards": rng.standard_normal(ROWS, np.float32),
        "next_obs": rng.standard_normal((ROWS, OBS_DIM), np.float32),
        "terminations": np.zeros(ROWS, bool),
        "truncations": ends,
    }
    return TransitionDataset.from_dict(fields).with_valid_next_actions()


def make(algo: str, width: int, layers: int, seed: int = 0) -> Algorithm[Any]:
    spec = get_algorithm_spec(algo)
    return spec.algorithm(SPEC, spec.config(hidden_sizes=(width,) * layers), seed=seed)


def offline(dataset: TransitionDataset, batch_size: int, seed: int = 0) -> Offline:
    return Offline(dataset, batch_size, seed=seed, device=torch.device("cpu"))


def alone(
    algorithm: Algorithm[Any], dataset: TransitionDataset, batch_size: int
) -> Callable[[], object]:
    experience = offline(dataset, batch_size)
    return lambda: algorithm.update(next(experience))


def compare_compiled(arguments: argparse.Namespace, dataset: TransitionDataset) -> None:
    for algo, width in cases(arguments):
        eager, compiled = (make(algo, width, arguments.layers) for _ in range(2))
        compiled.stepper = CompiledStepper()
        contestants = {
            "compiled": alone(compiled, dataset, arguments.batch_size),
            "eager": alone(eager, dataset, arguments.batch_size),
        }
        start, wall = time.process_time(), time.perf_counter()
        for _ in range(4):
            contestants["compiled"]()
        cpu, wall = time.process_time() - start, time.perf_counter() - wall
        timings = interleave(contestants, rounds=arguments.rounds, calls=arguments.updates)
        print_comparison(f"{algo}, {width}", "compiled", "eager", timings)
        print(f"  first updates: {wall:.0f} s, of which {cpu:.0f} s of this process", flush=True)


def compare_stacked(arguments: argparse.Namespace, dataset: TransitionDataset) -> None:
    counts = numbers(arguments.seeds)
    for algo, width in cases(arguments):
        solo = make(algo, width, arguments.layers)
        contestants = {"alone": alone(solo, dataset, arguments.batch_size)}
        for count in counts:
            seeds = range(count)
            stack = SeedStack([make(algo, width, arguments.layers, seed) for seed in seeds])
            batches = StackedOffline([offline(dataset, arguments.batch_size, s) for s in seeds])
            contestants[str(count)] = lambda stack=stack, batches=batches: stack.update(
                batches.layout, *batches.draw()
            )
        timings = interleave(contestants, rounds=arguments.rounds, calls=arguments.updates)
        one = timings["alone"].microseconds
        shares = ", ".join(
            f"{count} seeds {timings[str(count)].microseconds / count / one:.2f}"
            for count in counts
        )
        print(f"{algo}, {width}: alone {one:.0f} us; of that per seed: {shares}", flush=True)


def cases(arguments: argparse.Namespace) -> Iterator[tuple[str, int]]:
    return product(arguments.algos.split(","), numbers(arguments.widths))


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["compiled", "stacked"])
    parser.add_argument("--algos", default="td3_bc")
    parser.add_argument("--widths", default="64,256")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--seeds", default="1,2,4,8")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--updates", type=int, default=20, help="updates per round")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    compare = compare_compiled if arguments.what == "compiled" else compare_stacked
    compare(arguments, random_data())


if __name__ == "__main__":
    main()
