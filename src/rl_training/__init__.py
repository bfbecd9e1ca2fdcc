"""Offline, online and offline-to-online deep reinforcement learning on one runtime.

Names are looked up when they are first used, so importing the package costs no torch import.
Each room imports only from those below it:

- `cli`         command line
- `api`         everything that users import, and all that the command line calls
- `experiment`  configurations from files, several seeds, names of the registry
- `ope`         off-policy evaluation: policies judged by a log
- `runtime`     one training loop, evaluation, checkpoints
- `algorithms`  learners, a file each, and their registry
- `models`      networks and distributions
- `data`        datasets, replay buffers, batches
- `envs`        environments, rewards, spaces
- `reports`     comparisons of runs, from their directories
- `runs`        run directories: writing and reading
- `spec`        sizes and bounds of observations and actions
- `files`       atomic writes
- `imports`     modules of the user, which are found last
- `stop_signals` signals that ask a process to stop
- `config`      errors, options, YAML
"""

from __future__ import annotations

import sys

# `python -m rl_training` searches the working directory first, and the next import would run a stranger's
# `typing.py` there. If this package itself was found there, it is too late to distrust the directory.
if (
    sys.argv[:1] == ["-m"]
    and not getattr(sys.flags, "safe_path", False)  # from Python 3.11 on
    and any(
        option[:1] == "-" and option[-1:] == "m" and name.split(".")[0] == "rl_training"
        for option, name in zip(sys.orig_argv, sys.orig_argv[1:], strict=False)
    )
    and __path__[0].removesuffix("rl_training").rstrip("/\\") != sys.path[0]
):
    del sys.path[0]

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

try:
    __version__ = version("rl-training")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0.0.0"

_ROOMS = (
    "algorithms", "api", "cli", "config", "data", "envs", "experiment", "models", "ope", "reports",
    "runs", "runtime",
)  # fmt: skip


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
