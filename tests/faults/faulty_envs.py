"""An environment that fails on demand: a file says how and when, and without the file it is healthy."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

PLAN = "RL_FAULTS_PLAN"  # environment variable with the path of the file
ENV_ID = "Faulty-v0"
LENGTH = 17  # steps of an episode
# failures of a step; the last two end the process
STEP_FAULTS = (
    "raise", "exit", "nan observation", "inf observation", "nan reward", "inf reward", "wrong shape", "hang",
    "os._exit", "SIGKILL",
)  # fmt: skip
RESET_FAULTS = ("raise in reset", "nan in reset", "exit in reset")
CLOSE_FAULTS = ("raise in close",)
DEADLY = ("os._exit", "SIGKILL")


class FaultyEnv(gym.Env[Any, Any]):
    """A deterministic walk; counts its steps and resets over all of its episodes."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self) -> None:
        self.steps = self.resets = 0
        self.state = np.zeros(3, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.resets += 1
        self.time = 0
        self.state = self.np_random.standard_normal(3).astype(np.float32)
        fault = _due(self.resets, RESET_FAULTS)
        if fault == "raise in reset":
            raise RuntimeError("the motor is stuck")
        if fault == "exit in reset":
            sys.exit(3)
        return self.state * (np.nan if fault else 1), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        self.time += 1
        self.state = (0.9 * self.state + 0.1 * float(action[0])).astype(np.float32)
        obs, reward = self.state.copy(), -float(np.square(self.state).sum())
        fault = _due(self.steps, STEP_FAULTS)
        if fault is not None:
            _end_process_or_raise(fault)
            obs = {"nan observation": obs * np.nan, "inf observation": obs + np.inf}.get(fault, obs)
            obs = obs[:2] if fault == "wrong shape" else obs
            reward = {"nan reward": np.nan, "inf reward": np.inf}.get(fault, reward)
        return obs, reward, False, self.time >= LENGTH, {}

    def close(self) -> None:
        if _due(None, CLOSE_FAULTS):
            raise RuntimeError("the door is stuck")


def _end_process_or_raise(fault: str) -> None:
    if fault == "raise":
        raise RuntimeError("the motor is stuck")
    if fault == "exit":
        sys.exit(3)
    if fault == "os._exit":
        os._exit(3)
    if fault == "SIGKILL":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "hang":
        time.sleep(3600)


def _due(count: int | None, faults: tuple[str, ...]) -> str | None:
    """Fault that the plan wants now; None without a plan."""
    path = os.environ.get(PLAN)
    if path is None or not Path(path).exists():
        return None
    plan = json.loads(Path(path).read_text())
    if plan["how"] not in faults or (count is not None and count < plan["at"]):
        return None
    Path(f"{path}.injected").touch()  # the fault has happened: only then does the case count
    return str(plan["how"])


if ENV_ID not in gym.registry:
    gym.register(ENV_ID, entry_point=FaultyEnv)
