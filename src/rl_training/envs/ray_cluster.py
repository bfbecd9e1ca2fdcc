"""Connection to a Ray cluster, and room on it for the environments of a run."""

from __future__ import annotations

import importlib
import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rl_training.config import EnvError, MissingExtraError
from rl_training.stop_signals import STOP_SIGNALS

log = logging.getLogger("rl_training")
CPUS_EACH = 0.1  # asked for by one environment, so that ten fit on a core
CONNECT_SECONDS = 10
# read by Ray when it is imported or started; what the user sets stays
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is sent to Ray's makers
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",  # a process sees the GPUs that it asked for; spares a warning
}
PLACE_SECONDS = 60  # for a busy cluster to make room


def import_ray(what: str = "vector_env: ray") -> Any:
    """Import Ray, which is optional; `what` needs it."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    try:
        return importlib.import_module("ray")
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise MissingExtraError(what, "Ray", "ray") from None


def connect() -> Any:
    """Return Ray, connected: as it is already, else to `RAY_ADDRESS`, else to a cluster of this machine alone."""
    ray = import_ray()
    if ray.is_initialized():
        log.info("environments run on the Ray cluster that this process is connected to")
        return ray
    address = os.environ.get("RAY_ADDRESS") or "local"
    # Ray would put the working directory first in the workers' module path, before what is installed
    options: dict[str, Any] = {"job_config": ray.job_config.JobConfig(_client_job=True)}
    if address == "local":
        options |= {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    try:
        refuse_silence(address)
        with own_signals():
            ray.init(address, log_to_driver=False, logging_level="ERROR", **options)
    except Exception as error:  # Ray raises many kinds here
        reason = " ".join(str(error).split())
        raise EnvError(f"vector_env: ray cannot connect to Ray at {address!r}: {reason}") from None
    if address == "local":
        log.info("environments run on Ray, started on this machine (RAY_ADDRESS is not set)")
    else:
        log.info("environments run on the Ray cluster at %s (RAY_ADDRESS)", address)
    return ray


def refuse_silence(address: str) -> None:
    """Raise an `OSError` if nothing listens at an address: Ray itself would try for many minutes."""
    host, _, port = address.split("://")[-1].rpartition(":")
    if port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()


@contextmanager
def own_signals() -> Iterator[None]:
    """Context in which to connect: Ray would take over SIGTERM, and exit without saving the run."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def reserve(ray: Any, count: int) -> Any:
    """Reserve room for all environments at once, spread over the nodes; an `EnvError` if there is none."""
    group = ray.util.placement_group([{"CPU": CPUS_EACH}] * count, strategy="SPREAD")
    try:
        # in short waits, because a signal is handled only between two of them
        placed = any(group.wait(1) for _ in range(PLACE_SECONDS))
    except BaseException:
        ray.util.remove_placement_group(group)
        raise
    if placed:
        return group
    ray.util.remove_placement_group(group)
    total = ray.cluster_resources().get("CPU", 0)
    free = ray.available_resources().get("CPU", 0)
    raise EnvError(
        f"vector_env: ray found no room for {count} environments with {CPUS_EACH:g} CPUs each within "
        f"{PLACE_SECONDS} seconds: {free:g} of {total:g} CPUs of the Ray cluster are free"
    )
