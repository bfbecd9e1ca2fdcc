"""Cost of a vector step where environments run: in this process, in processes, in Ray actors.

`python -m benchmarks.ray_envs` prints a table. A step of the environment sleeps, as if a simulator on another
machine computed it: sleeping needs no core, so a small machine can stand for a large cluster. In `async, computing`
it computes instead, so that environments share the cores of this machine.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from statistics import median
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

from benchmarks.cells import table
from rl_training.envs import make_vector_env

KINDS = ("sync", "async", "ray")
COLUMNS = ("sync", "async", "async, computing", "ray")
COUNTS = (1, 4, 8)
STEP_MS = (0, 1, 2, 5, 10, 50)
MIN_STEPS, TURN_SECONDS = 3, 0.3  # of one turn


class SleepingEnv(gym.Env[Any, Any]):
    """As large as HalfCheetah, and as slow as it is told to be: sleeping, or computing (CPU time)."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (17,), np.float64)
    action_space = gym.spaces.Box(-1.0, 1.0, (6,), np.float32)
    seconds = 0.0
    computes = False

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(17), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.computes:
            end = time.thread_time() + self.seconds
            while time.thread_time() < end:
                pass
        elif self.seconds:
            time.sleep(self.seconds)
        return np.zeros(17), 0.0, False, False, {}


def measure(count: int, rounds: int) -> dict[int, dict[str, float]]:
    """Return the milliseconds of a vector step by step time and kind; the kinds take turns."""
    vectors: dict[str, Any] = {
        kind: make_vector_env(
            f"{__spec__.name if __spec__ else __name__}:SleepingEnv",
            count,
            vector_env=kind,
            autoreset_mode=AutoresetMode.SAME_STEP,
            copy=False,
        )
        for kind in KINDS
    }
    try:
        for envs in vectors.values():
            envs.reset(seed=0)
        return {step_ms: _turns(vectors, step_ms, rounds) for step_ms in STEP_MS}
    finally:
        for envs in vectors.values():
            envs.close()


def _turns(vectors: Mapping[str, Any], step_ms: int, rounds: int) -> dict[str, float]:
    times: dict[str, list[float]] = {column: [] for column in COLUMNS}
    for envs in vectors.values():
        envs.set_attr("seconds", step_ms / 1e3)
    for turn in range(rounds):
        for column in COLUMNS if turn % 2 else reversed(COLUMNS):
            envs = vectors[column.split(",")[0]]
            envs.set_attr("computes", "computing" in column)
            times[column].append(_turn(envs))
    return {column: median(rounds_of) for column, rounds_of in times.items()}


def _turn(envs: Any) -> float:
    actions = np.zeros(envs.action_space.shape, np.float32)
    envs.step(actions)  # wakes sleeping processes
    began, steps = time.perf_counter(), 0
    while steps < MIN_STEPS or time.perf_counter() - began < TURN_SECONDS:
        envs.step(actions)
        steps += 1
    return (time.perf_counter() - began) / steps * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    rows = []
    for count in COUNTS:
        for step_ms, times in measure(count, rounds).items():
            rows.append([str(count), str(step_ms), *(f"{times[column]:.1f}" for column in COLUMNS)])
            print(f"{count} environments, {step_ms} ms: done", file=sys.stderr)
    print(table(["environments", "step, ms", *COLUMNS], rows))


if __name__ == "__main__":
    main()
