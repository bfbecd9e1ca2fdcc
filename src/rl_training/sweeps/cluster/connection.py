"""Connection to a Ray cluster: the one of an address, or one that is started on this machine."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rl_training.config import ConfigError, RunError, first_line
from rl_training.envs.ray_cluster import import_ray, own_signals, refuse_silence
from rl_training.sweeps.cluster.resources import describe_totals, fitting, write_resources

LOCAL = "local"  # address of a Ray that is started for this command
LOCAL_ONLY = {
    "RAY_worker_niceness": "0"
}  # Ray's default is 15; trials have a nice level of their own


@contextmanager
def connected(address: str | None, cores: int) -> Iterator[Any]:
    """Context of a connection to Ray; without an address (or RAY_ADDRESS) one with so many cores is started.

    A program that has called `ray.init` keeps its own connection.
    """
    ray = import_ray("--backend ray")
    if ray.is_initialized():
        yield ray
        return
    address = address or os.environ.get("RAY_ADDRESS") or LOCAL
    if "://" in address:
        raise ConfigError(
            f"--address {address}: start the command on a machine of the cluster, and give host:port or auto"
        )
    _check_answers(address)
    try:
        with _outside_working_directory(), own_signals():
            ray.init(**_arguments(address, cores))
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        raise RunError(_reason(address, error)) from None
    try:
        yield ray
    finally:
        ray.shutdown()


def _check_answers(address: str) -> None:
    """Refuse an address where nobody listens: Ray itself would try for ten minutes."""
    if address in (LOCAL, "auto"):
        return
    if not address.rpartition(":")[2].isdecimal():
        raise ConfigError(f"--address {address}: write host:port, auto or local")
    try:
        refuse_silence(address)
    except (OSError, OverflowError) as error:
        raise RunError(_reason(address, error)) from None


def _arguments(address: str, cores: int) -> dict[str, Any]:
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address != LOCAL:
        return {"address": address, **quiet}
    for name, value in LOCAL_ONLY.items():
        os.environ.setdefault(name, value)
    return {"address": LOCAL, "num_cpus": cores, "include_dashboard": False, **quiet}


@contextmanager
def _outside_working_directory() -> Iterator[None]:
    """Context in another directory: Ray lets all its processes import from the one it is started in."""
    before = Path.cwd()
    os.chdir(os.sep)
    try:
        yield
    finally:
        os.chdir(before)


def _reason(address: str, error: Exception) -> str:
    text = str(error)
    if "ersion mismatch" in text:
        facts = " ".join(line.strip() for line in text.splitlines() if line.strip())
        return f"Ray at {address} has other versions: {facts}"
    if address == LOCAL:
        return f"cannot start Ray on this machine: {first_line(error)}"
    return f"no Ray answers at {address} (is it started there, as with `ray start --head`?): {first_line(error)}"


def alive_nodes(ray: Any) -> list[dict[str, Any]]:
    """List the nodes of the cluster that are alive."""
    return [node for node in ray.nodes() if node["Alive"]]


def node_label(node: Mapping[str, Any]) -> str:
    """Name a node so that somebody finds it."""
    names = dict.fromkeys((node["NodeManagerHostname"], node["NodeName"]))
    return f"{' '.join(names)} ({node['NodeID'][:8]})"


def capacity(nodes: Sequence[Mapping[str, Any]], needs: Mapping[str, float]) -> int:
    """Count the trials that the cluster holds at a time; none at all is an error."""
    held = sum(fitting(needs, node["Resources"]) for node in nodes)
    if held == 0:
        totals = "; ".join(f"{node_label(n)}: {describe_totals(n['Resources'])}" for n in nodes)
        raise ConfigError(
            f"--resources {write_resources(needs)}: no node of the cluster has as much\nthere are {totals}"
        )
    return held
