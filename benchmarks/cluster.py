"""Cost of carrying trials out: overhead per trial, start-up, and throughput on one to three workers.

    python -m benchmarks.cluster            # needs the extra `ray`; about five minutes

A trial's overhead is the time from handing it to the executor to its first update, less the same time of
`train` in a process that has trained before. The workers are nodes of `ray.cluster_utils.Cluster`, each with one CPU,
all on this machine: with fewer cores than workers the last ones add nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks import clock
from benchmarks.cells import table
from benchmarks.clock import clock_of
from rl_training.envs.ray_cluster import import_ray
from rl_training.runtime import TrainConfig
from rl_training.runtime.commands import train_in
from rl_training.sweeps.cluster.connection import LOCAL_ONLY
from rl_training.sweeps.executor import Executor, Task
from rl_training.sweeps.local import LocalExecutor
from rl_training.sweeps.ray_executor import RayOptions, ray_cluster

CLOCK_PLUGIN = str(Path(clock.__file__))
NODE = {"num_cpus": 1, "object_store_memory": 100 * 2**20, "include_dashboard": False}
MakeExecutor = Callable[[], Executor]


def config_of(updates: int, log_interval: int, width: int, seed: int = 0) -> TrainConfig:
    return TrainConfig(
        algo="td3_bc",
        env_id="Pendulum-v1",
        seed=seed,
        total_timesteps=updates,
        eval_episodes=0,
        log_interval=log_interval,
        checkpoint_interval=10**9,
        algo_kwargs={
            "dataset_kind": "random",
            "dataset_size": 2_000,
            "hidden_sizes": [width, width],
            "tensorboard": False,
        },
    )


def task_of(config: TrainConfig, directory: Path, name: str) -> Task:
    run_dir, status, log = (str(directory / f"{name}{end}") for end in ("", ".json", ".log"))
    return Task(name, config.as_dict(), run_dir, status, log, plugins=(CLOCK_PLUGIN,))


def carried_out(executor: Executor, tasks: list[Task]) -> float:
    """Carry tasks out side by side; returns when they were handed over."""
    began = time.time()
    for task in tasks:
        executor.start(task)
    left = {task.name for task in tasks}
    while left:
        for ended in executor.wait(60.0):
            assert not ended.died, ended
            left.remove(ended.name)
    return began


def solo(directory: Path, trials: int) -> list[float]:
    """Seconds to the first update in this process, which has trained once before."""
    seconds = []
    for number in range(trials + 1):
        began = time.time()
        train_in(directory / f"solo-{number}", config_of(2, 1, 64, number))
        seconds.append(clock_of(directory / f"solo-{number}")[0] - began)
    return seconds[1:]


def overhead(make: MakeExecutor, directory: Path, trials: int) -> dict[str, float]:
    """Seconds of the executor's start, and to the first update of the first trial and of later ones."""
    began = time.time()
    executor = make()
    started = time.time() - began
    to_update, whole = [], []
    try:
        for number in range(trials + 1):
            task = task_of(config_of(2, 1, 64, number), directory, f"trial-{number}")
            handed = carried_out(executor, [task])
            to_update.append(clock_of(task.run_dir)[0] - handed)
            whole.append(time.time() - handed)
    finally:
        executor.close()
    return {
        "start": started,
        "first": to_update[0],
        "later": statistics.median(to_update[1:]),
        "whole": statistics.median(whole[1:]),
    }


def throughput(make: MakeExecutor, directory: Path, workers: int, updates: int) -> float:
    """Updates per second of so many trials side by side, from the first update of the last one to start."""
    executor = make()
    try:
        warm = [task_of(config_of(2, 1, 256, n), directory, f"warm-{n}") for n in range(workers)]
        carried_out(executor, warm)
        tasks = [
            task_of(config_of(updates, 10, 256, n), directory, f"long-{n}") for n in range(workers)
        ]
        carried_out(executor, tasks)
    finally:
        executor.close()
    clocks = [clock_of(task.run_dir) for task in tasks]
    return sum((updates - 10) / (last - first) for first, last in clocks)


@contextmanager
def nodes(count: int) -> Iterator[str]:
    """Context of a cluster of so many workers, beside a head that trains nothing."""
    os.environ.update(LOCAL_ONLY)
    import_ray()
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={**NODE, "num_cpus": 0})
    try:
        for _ in range(count):
            cluster.add_node(**NODE)
        yield str(cluster.address)
    finally:
        cluster.shutdown()


@contextmanager
def on_ray(address: str, directory: Path, storage: Any) -> Iterator[MakeExecutor]:
    options = RayOptions(address, "cpus=1", storage)
    with ray_cluster(options, [config_of(1, 1, 64)], [CLOCK_PLUGIN]) as cluster:
        yield cluster.executor(directory)


def measure(trials: int, rounds: int, updates: int) -> dict[str, Any]:
    results: dict[str, Any] = {"cores": len(os.sched_getaffinity(0)), "load": os.getloadavg()[0]}
    with ExitStack() as stack:
        base = Path(stack.enter_context(tempfile.TemporaryDirectory()))

        def fresh() -> Path:
            return Path(tempfile.mkdtemp(dir=base))

        alone = statistics.median(solo(fresh(), trials))
        results["solo"] = alone
        results["overhead"] = {"local": overhead(LocalExecutor, fresh(), trials)}
        began = time.time()
        with on_ray("local", fresh(), "shared"):
            results["local_start"] = time.time() - began
        began = time.time()
        with nodes(1) as address:
            results["cluster_start"] = time.time() - began
            for storage in ("shared", "returned"):
                directory = fresh()
                began = time.time()
                with on_ray(address, directory, storage) as make:
                    results.setdefault("connect", time.time() - began)
                    results["overhead"][storage] = overhead(make, directory, trials)
        results["throughput"] = {
            workers: throughputs(workers, rounds, updates, fresh) for workers in (1, 2, 3)
        }
    return results


def throughputs(
    workers: int, rounds: int, updates: int, fresh: Callable[[], Path]
) -> dict[str, float]:
    """Median over rounds, the executors in turns."""
    seen: dict[str, list[float]] = {"local": [], "shared": []}
    with nodes(workers) as address:
        for _ in range(rounds):
            seen["local"].append(throughput(LocalExecutor, fresh(), workers, updates))
            directory = fresh()
            with on_ray(address, directory, "shared") as make:
                seen["shared"].append(throughput(make, directory, workers, updates))
    return {name: statistics.median(values) for name, values in seen.items()}


def report(results: Mapping[str, Any]) -> str:
    names = {"local": "local", "shared": "Ray, shared", "returned": "Ray, returned"}
    rows = [
        [
            names[name],
            f"{values['start']:.2f}",
            f"{values['first'] - results['solo']:.2f}",
            f"{values['later'] - results['solo']:.2f}",
            f"{values['whole']:.2f}",
        ]
        for name, values in results["overhead"].items()
    ]
    header = ["executor", "start (s)", "first trial (s)", "later trials (s)", "whole trial (s)"]
    speeds = [
        [str(workers), *(f"{values[name]:.0f}" for name in ("local", "shared"))]
        for workers, values in results["throughput"].items()
    ]
    return "\n\n".join(
        [
            table(header, rows),
            table(["trials at a time", "local (updates/s)", "Ray (updates/s)"], speeds),
            f"{results['cores']} cores, load {results['load']:.1f} before; solo {results['solo']:.2f} s to the "
            f"first update; starting Ray for a command {results['local_start']:.1f} s, two nodes {results['cluster_start']:.1f} s, connecting {results['connect']:.2f} s",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=1_000)
    parser.add_argument("--json", type=Path)
    words = parser.parse_args()
    results = measure(words.trials, words.rounds, words.updates)
    if words.json is not None:
        words.json.write_text(json.dumps(results, indent=2) + "\n")
    print(report(results))


if __name__ == "__main__":
    main()
