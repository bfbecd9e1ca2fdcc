"""Resources of a cluster that one trial takes: `cpus=1,gpus=0.5,simulator=1`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rl_training.config import ConfigError

_RAY_NAMES = {"cpus": "CPU", "gpus": "GPU"}
_RESERVED = ("CPU", "GPU", "memory", "object_store_memory")


def parse_resources(text: str) -> dict[str, float]:
    """Read `cpus=1,gpus=0.5,simulator=1`."""
    needs: dict[str, float] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, _, written = (part.strip() for part in entry.partition("="))
        if name in _RESERVED or not name:
            raise ConfigError(
                f"--resources {entry!r}: write cpus=N, gpus=N or the name of your own resource"
            )
        needs[name] = _amount(entry, written)
        if name == "gpus" and needs[name] > 1 and needs[name] % 1:
            raise ConfigError(f"--resources {entry!r}: more than one GPU must be a whole number")
    return needs


def _amount(entry: str, written: str) -> float:
    try:
        amount = float(written)
    except ValueError:
        amount = math.nan
    if not 0 <= amount < math.inf:
        raise ConfigError(f"--resources {entry!r}: write a number after =, such as cpus=2")
    return amount


def write_resources(needs: Mapping[str, float]) -> str:
    return ",".join(f"{name}={amount:g}" for name, amount in needs.items())


def check_resources(needs: Mapping[str, float]) -> None:
    if not any(needs.values()):
        raise ConfigError("--resources: a trial must take something, such as cpus=1")


def task_options(needs: Mapping[str, float]) -> dict[str, Any]:
    """Return the resources as options of a Ray task."""
    return {
        "num_cpus": needs.get("cpus", 0.0),
        "num_gpus": needs.get("gpus", 0.0),
        "resources": {
            name: amount for name, amount in needs.items() if name not in _RAY_NAMES and amount
        },
    }


def fitting(needs: Mapping[str, float], totals: Mapping[str, float]) -> int:
    """Count the trials that a node with these resources holds at a time."""
    shares = [
        totals.get(_RAY_NAMES.get(name, name), 0.0) / amount
        for name, amount in needs.items()
        if amount
    ]
    return int(min(shares) + 1e-9)


def describe_totals(totals: Mapping[str, float]) -> str:
    """Write the resources of a node as `--resources` names them."""
    named = {ray: name for name, ray in _RAY_NAMES.items()}
    own = {
        named.get(name, name): amount
        for name, amount in sorted(totals.items())
        if not name.startswith("node:") and name not in ("memory", "object_store_memory")
    }
    return write_resources(own) or "nothing"
