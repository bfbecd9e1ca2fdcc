"""Environments whose every transition can be told from its row."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np


class ScriptedEnv(gym.Env[Any, Any]):
    """Observations (identity, time); identity k lasts 3 + k % 4 steps.

    Odd identities terminate, even ones are truncated. The reward tells identity, time and action.
    """

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gym.spaces.Box(-2.0, 2.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.identity = int(self.np_random.integers(1_000))
        self.time = 0
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = reward_of(self.identity, self.time, float(action[0]))
        self.time += 1
        ended = self.time >= length_of(self.identity)
        odd = self.identity % 2 == 1
        return self._obs(), reward, ended and odd, ended and not odd, {}

    def _obs(self) -> Any:
        return np.array([self.identity, self.time], np.float64)


class OverwritingEnv(ScriptedEnv):
    """Returns one and the same array as every observation."""

    def __init__(self) -> None:
        self.shared = np.zeros(2)

    def _obs(self) -> Any:
        self.shared[:] = self.identity, self.time
        return self.shared


def length_of(identity: int) -> int:
    return 3 + identity % 4


def reward_of(identity: int, time: int, action: float) -> float:
    return identity + 0.1 * time + 0.01 * action


class FailingEnv(ScriptedEnv):
    """Fails in a chosen way at its `after`-th step, counted over all of its episodes."""

    def __init__(self, how: str = "raise", after: int = 25) -> None:
        self.how, self.after, self.steps = how, after, 0

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        obs, reward, terminated, truncated, info = super().step(action)
        if self.steps >= self.after:
            if self.how == "raise":
                raise RuntimeError("the motor is stuck")
            if self.how == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.how == "nan observation":
                obs = obs * np.nan
            if self.how == "nan reward":
                reward = float("nan")
        return obs, reward, terminated, truncated, info


class RestlessEnv(ScriptedEnv):
    """Not the same twice from the same seed."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.identity = int(np.random.default_rng().integers(1_000_000))
        return self._obs(), {}


class Panic(BaseException):
    """No `Exception`: the kind that native code raises when it panics."""


class TextlessError(Exception):
    """Has a text that cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


ERRORS = {
    "raise": RuntimeError("the motor is stuck"),
    "unpicklable": RuntimeError("stuck", lambda: None),
    "panic": Panic("the native code is stuck"),
    "interrupt": KeyboardInterrupt(),
    "textless": TextlessError(),
}


class TroubledEnv(ScriptedEnv):
    """Does what the file `trouble` says ("how after"), until the file is gone.

    Steps are counted over all episodes of this object.
    """

    def __init__(self, trouble: str) -> None:
        self.trouble, self.steps = Path(trouble), 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        obs, info = super().reset(seed=seed)
        how, after = self._trouble()
        return (obs * np.nan if how == "nan reset" and self.steps >= after else obs), info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        obs, reward, terminated, truncated, info = super().step(action)
        how, after = self._trouble()
        if self.steps == after:
            if how in ERRORS:
                raise ERRORS[how]
            if how == "exit":
                sys.exit(3)
            if how == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            if how == "hang":
                time.sleep(1_000)
            if how == "nan observation":
                obs = obs * np.nan
            if how == "ctrl-c":
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(1_000)
        return obs, reward, terminated, truncated, info

    def close(self) -> None:
        if self.steps and self._trouble()[0] == "close":
            raise RuntimeError("the door is stuck")

    def _trouble(self) -> tuple[str, int]:
        if not self.trouble.exists():
            return "", -1
        how, _, after = self.trouble.read_text().rpartition(" ")
        return how, int(after)


class EndlessEnv(ScriptedEnv):
    """One episode that never ends."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, *_ = super().step(action)
        return obs, reward, False, False, {}


class TalkativeEnv(ScriptedEnv):
    """Tells of its steps in infos of every kind: nested, arrays, text, and keys that come and go."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        obs, _ = super().reset(seed=seed)
        return obs, {"identity": self.identity, "nested": {"begun": True, "at": np.arange(2)}}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, _ = super().step(action)
        info: dict[str, Any] = {
            "text": f"step {self.time}",
            "nested": {"more": {"time": self.time}},
        }
        if self.identity % 3 == 0:
            info |= {"pair": np.array([self.time, 1.5]), "rare": None, "flag": np.bool_(True)}
        return obs, reward, terminated, truncated, info
