"""Which cores this process may use, what a run makes of them, and whether more threads pay."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

SETTINGS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_WAIT_POLICY")
SIZE = 256  # of the layers and batches that most algorithms have by default
CGROUPS = Path("/sys/fs/cgroup")


def thread_lines() -> Iterator[tuple[str, str]]:
    """What `doctor` says: a title and a sentence each."""
    from rl_training.runtime.config.controls import ControlsConfig

    cores, limit = usable_cores(), cgroup_limit()
    granted = "" if limit is None else f", of which the control group grants {limit:g}"
    yield "cores", f"{cores} of {os.cpu_count()} for this process{granted}; {_load()}"
    default = ControlsConfig().torch_threads
    yield (
        "threads",
        f"a run takes {default} of PyTorch's: torch_threads is {default} unless set, and goes before the "
        f"environment ({_settings(os.environ)})",
    )
    if os.environ.get("OMP_WAIT_POLICY", "").lower() == "passive":
        yield "", "OMP_WAIT_POLICY=passive makes two threads slower than one: unset it"
    yield "gemm", _measured(1 if min(cores, limit or cores) < 2 else 2)


def usable_cores() -> int:
    """Those that the system may schedule this process on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cgroup_limit(own: Path = Path("/proc/self/cgroup"), root: Path = CGROUPS) -> float | None:
    """How many cores' time the process and its control groups may take, if that is limited."""
    try:
        entries = [line.split(":", 2) for line in own.read_text().splitlines()]
    except OSError:
        return None
    limits = []
    for (
        _,
        controllers,
        name,
    ) in entries:  # version 2 has one tree, version 1 one for each controller
        if controllers and "cpu" not in controllers.split(","):
            continue
        top = root / controllers
        place = top / name.lstrip("/")
        for group in (place, *place.parents[: len(place.parents) - len(top.parents)]):
            limits += _quotas(group)
    return min(limits, default=None)


def _quotas(group: Path) -> list[float]:
    """Of version 2, in one file, and of version 1, in two."""
    found = []
    for files in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        try:
            quota, period = " ".join((group / file).read_text() for file in files).split()
            found.append(int(quota) / int(period))
        except (OSError, ValueError, ZeroDivisionError):  # not there, or `max`
            continue
    return [quota for quota in found if quota > 0]  # -1 is no limit


def gemm_rate(threads: int, seconds: float = 0.12) -> float:
    """GFLOP/s of a matrix product of the usual size: the best of short stretches."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        left, right = torch.rand(SIZE, SIZE), torch.rand(SIZE, SIZE)
        out, best = torch.empty(SIZE, SIZE), 0.0
        end = time.perf_counter() + seconds
        while best == 0.0 or time.perf_counter() < end:
            start = time.perf_counter()
            for _ in range(10):
                torch.mm(left, right, out=out)
            best = max(best, 10 / (time.perf_counter() - start))
    finally:
        torch.set_num_threads(before)
    return best * 2 * SIZE**3 / 1e9


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
    given = [f"{name}={environment[name]}" for name in SETTINGS if name in environment]
    return ", ".join(given) or "OMP_NUM_THREADS and MKL_NUM_THREADS are not set"


def _load() -> str:
    if not hasattr(os, "getloadavg"):
        return "how busy they are is not known"
    return f"{os.getloadavg()[0]:.1f} busy over the last minute"
