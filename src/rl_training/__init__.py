"""Offline, online and offline-to-online deep reinforcement learning on one runtime.

Names are looked up when they are first used, so importing the package costs no torch import.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rl_training.runtime.config.train_config import TrainConfig as TrainConfig

try:
    __version__ = version("rl-training")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0.0.0"

_ROOMS = ("algorithms", "api", "cli", "config", "data", "envs", "experiment", "models", "runtime")


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(f"module 'rl_training' has no attribute {name!r}")
    if name in _ROOMS:
        return import_module(f"rl_training.{name}")
    try:
        return getattr(import_module("rl_training.api"), name)
    except AttributeError:
        raise AttributeError(f"module 'rl_training' has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return sorted({"__version__", *_ROOMS, *dir(import_module("rl_training.api"))})
