"""Ray actor that holds one environment: what runs on the other machine."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec

from rl_training import __version__
from rl_training.config import RLTrainingError
from rl_training.envs.errors import reason_of
from rl_training.envs.ray_cluster import import_ray
from rl_training.stop_signals import STOP_SIGNALS

Maker = Callable[[], gym.Env[Any, Any]]


class Failure(NamedTuple):
    """Error of an environment as text: the exception may not survive the way back."""

    text: str


class Made(NamedTuple):
    """Description of the environment that an actor has made."""

    observation_space: gym.Space[Any]
    action_space: gym.Space[Any]
    metadata: dict[str, Any]
    render_mode: str | None
    node: str
    versions: dict[str, str]


class Member:
    """Actor that holds one environment; whatever that raises is returned as a `Failure`."""

    def __init__(self, paths: Sequence[str], directory: str) -> None:
        for number in STOP_SIGNALS:  # the training process alone decides what happens
            signal.signal(number, signal.SIG_IGN)
        sys.path.extend(path for path in paths if path not in sys.path)
        with suppress(OSError):  # another machine may not have it
            os.chdir(directory)

    def make(self, maker: Maker, registered: EnvSpec | None = None) -> Made | Failure:
        """Make the environment, of an id that may be registered in the training process only."""
        node = import_ray().util.get_node_ip_address()
        try:
            if registered is not None:
                gym.registry.setdefault(registered.id, registered)
            self.env = env = maker()
        except BaseException as error:  # `sys.exit` would end the actor without a word
            reason = str(error) if isinstance(error, RLTrainingError) else reason_of(error)
            return Failure(f"{reason} (on the Ray node {node})")
        spaces = env.observation_space, env.action_space
        return Made(*spaces, dict(env.metadata), env.render_mode, node, versions())

    def do(self, name: str, *arguments: Any) -> Any:
        """Carry out one of the methods below."""
        try:
            return getattr(self, f"_{name}")(*arguments)
        except BaseException as error:
            return Failure(reason_of(error))

    def _reset(self, options: dict[str, Any]) -> Any:
        return self.env.reset(**options)

    def _step(self, action: Any, resets: bool) -> Any:
        """Step, and at the end of an episode also reset, if told to: that saves a request."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        if not (resets and (terminated or truncated)):
            return (obs, reward, terminated, truncated, info), None
        return (obs, reward, terminated, truncated, info), self.env.reset()

    def _call(self, name: str, given: tuple[tuple[Any, ...], dict[str, Any]]) -> Any:
        value = self.env.get_wrapper_attr(name)
        return value(*given[0], **given[1]) if callable(value) else value

    def _set(self, name: str, value: Any) -> None:
        self.env.set_wrapper_attr(name, value)

    def _close(self) -> None:
        self.env.close()


def versions() -> dict[str, str]:
    """Return the versions of the packages that decide what a step gives."""
    return {"numpy": np.__version__, "gymnasium": gym.__version__, "rl-training": __version__}
