"""What the steppers cost: eager, replayed and compiled losses, and stacked seeds beside single ones.

    python -m benchmarks.steppers compiled --algos td3_bc,sac --widths 64,256
    python -m benchmarks.steppers stacked --algos td3_bc --widths 32,64,128,256 --seeds 2,4,8

CPU time per update and seed, sampling included, in one thread; contestants take turns.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from itertools import product
from statistics import median
from typing import Any

import torch

from benchmarks.speed.problem import ACTION_DIM, OBS_DIM, random_fields
from benchmarks.speed.timing import Contestant, Timing, interleave
from rl_training.algorithms import Algorithm, get_algorithm_spec
from rl_training.data import TransitionDataset
from rl_training.runtime.experience import Offline, StackedOffline
from rl_training.runtime.memory import keep_freed_memory
from rl_training.runtime.stacking import SeedStack
from rl_training.runtime.steppers import StepperKind, build_stepper
from rl_training.spec import ProblemSpec

SPEC = ProblemSpec(OBS_DIM, "continuous", ACTION_DIM, (-1.0,) * ACTION_DIM, (1.0,) * ACTION_DIM)
UNIT = 2  # updates, of which TD3's actor takes part in every other


def make(
    algo: str, width: int, layers: int, seed: int = 0, stepper: StepperKind = "replay"
) -> Algorithm[Any]:
    spec = get_algorithm_spec(algo)
    learner = spec.algorithm(SPEC, spec.config(hidden_sizes=(width,) * layers), seed=seed)
    learner.stepper = build_stepper(stepper)
    return learner


def offline(dataset: TransitionDataset, batch_size: int, seed: int = 0) -> Offline:
    return Offline(dataset, batch_size, seed=seed, device=torch.device("cpu"))


def repeated(update: Callable[[], object]) -> Contestant:
    def run(count: int) -> None:
        for _ in range(count):
            update()

    return Contestant(run, UNIT)


def alone(
    algorithm: Algorithm[Any], dataset: TransitionDataset, batch_size: int
) -> Callable[[], object]:
    experience = offline(dataset, batch_size)
    return lambda: algorithm.update(next(experience))


def stacked(
    algorithms: list[Algorithm[Any]], dataset: TransitionDataset, batch_size: int
) -> Callable[[], object]:
    stack = SeedStack(algorithms)
    batches = StackedOffline(
        [offline(dataset, batch_size, seed) for seed in range(len(algorithms))]
    )
    return lambda: stack.update(batches.layout, *batches.draw())


def ratio(ours: Timing, theirs: Timing) -> float:
    return median(a / b for a, b in zip(ours.cpu, theirs.cpu, strict=True))


def compare_compiled(arguments: argparse.Namespace, dataset: TransitionDataset) -> None:
    for algo, width in cases(arguments):
        compiled = make(algo, width, arguments.layers, stepper="compiled")
        update = alone(compiled, dataset, arguments.batch_size)
        start = time.perf_counter()
        for _ in range(UNIT):
            update()
        seconds = time.perf_counter() - start
        contestants = {"compiled": repeated(update)}
        for kind in ("eager", "replay"):
            learner = make(algo, width, arguments.layers, stepper=kind)
            contestants[kind] = repeated(alone(learner, dataset, arguments.batch_size))
        found = interleave(contestants, rounds=arguments.rounds, seconds=arguments.seconds)
        times = ", ".join(f"{name} {timing.microseconds:.0f} us" for name, timing in found.items())
        shares = [ratio(found[kind], found["eager"]) for kind in ("replay", "compiled")]
        print(
            f"{algo}, {width}: {times}; of eager: replay {shares[0]:.2f}, compiled {shares[1]:.2f}; "
            f"compiling {seconds:.0f} s",
            flush=True,
        )


def compare_stacked(arguments: argparse.Namespace, dataset: TransitionDataset) -> None:
    counts = numbers(arguments.seeds)
    for algo, width in cases(arguments):
        solo = make(algo, width, arguments.layers)
        contestants = {"alone": repeated(alone(solo, dataset, arguments.batch_size))}
        for count in counts:
            seeds = [make(algo, width, arguments.layers, seed) for seed in range(count)]
            contestants[str(count)] = repeated(stacked(seeds, dataset, arguments.batch_size))
        found = interleave(contestants, rounds=arguments.rounds, seconds=arguments.seconds)
        shares = ", ".join(
            f"{count} seeds {ratio(found[str(count)], found['alone']) / count:.2f}"
            for count in counts
        )
        one = found["alone"].microseconds
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
    parser.add_argument("--seeds", default="2,4,8", help="how many are stacked")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.5, help="of CPU time, each, per round")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    dataset = TransitionDataset.from_dict(random_fields(100_000)).with_valid_next_actions()
    compare = compare_compiled if arguments.what == "compiled" else compare_stacked
    compare(arguments, dataset)


if __name__ == "__main__":
    main()
