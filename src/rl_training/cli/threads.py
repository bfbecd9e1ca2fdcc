"""Lines of `doctor` on cores and threads: what there is, what a run takes, whether more would pay."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from rl_training.api.machine import (
    SIZE,
    cgroup_limit,
    default_torch_threads,
    gemm_rate,
    usable_cores,
)

SETTINGS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_WAIT_POLICY")


def thread_lines() -> Iterator[tuple[str, str]]:
    """Yield a title and a sentence for each line."""
    cores, limit = usable_cores(), cgroup_limit()
    granted = "" if limit is None else f", of which the control group grants {limit:g}"
    yield "cores", f"{cores} of {os.cpu_count()} for this process{granted}; {_load()}"
    default = default_torch_threads()
    yield (
        "threads",
        f"a run takes {default} of PyTorch's: torch_threads is {default} unless set, and goes before the "
        f"environment ({_settings(os.environ)})",
    )
    if os.environ.get("OMP_WAIT_POLICY", "").lower() == "passive":
        yield "", "OMP_WAIT_POLICY=passive makes two threads slower than one: unset it"
    yield "gemm", _measured(1 if min(cores, limit or cores) < 2 else 2)


def _measured(threads: int) -> str:
    first = gemm_rate(1)
    text = f"{SIZE} x {SIZE} x {SIZE}: {first:.0f} GFLOP/s with 1 thread"
    if threads == 1:
        return f"{text}; there is no second core to try"
    second = gemm_rate(2)
    ratio = second / first
    verdict = "torch_threads: 2 may pay" if ratio > 1.3 else "more threads do not pay"
    return (
        f"{text}, {second:.0f} with 2 ({ratio:.2g} times): {verdict}, as busy as the machine is now"
    )


def _settings(environment: Mapping[str, str]) -> str:
    settings = [f"{name}={environment[name]}" for name in SETTINGS if name in environment]
    return ", ".join(settings) or "OMP_NUM_THREADS and MKL_NUM_THREADS are not set"


def _load() -> str:
    if not hasattr(os, "getloadavg"):
        return "how busy they are is not known"
    return f"{os.getloadavg()[0]:.1f} busy over the last minute"
