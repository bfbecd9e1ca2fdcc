"""Facts about this machine: cores, threads, device, cache, and algorithms that can be built."""

from __future__ import annotations

import os
import time
from pathlib import Path

SIZE = 256  # width of layers and batches that most algorithms have by default
CGROUPS = Path("/sys/fs/cgroup")


def usable_cores() -> int:
    """Cores that this process may use: fewer than the machine has in a container or under taskset."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cgroup_limit(
    membership: Path = Path("/proc/self/cgroup"), root: Path = CGROUPS
) -> float | None:
    """Cores' worth of time that the control groups of this process grant; None without a limit."""
    try:
        entries = [line.split(":", 2) for line in membership.read_text().splitlines()]
    except OSError:
        return None
    limits = []
    # cgroup version 2 has one tree, version 1 one for each controller
    for _, controllers, name in entries:
        if controllers and "cpu" not in controllers.split(","):
            continue
        top = root / controllers
        leaf = top / name.lstrip("/")
        for group in (leaf, *leaf.parents[: len(leaf.parents) - len(top.parents)]):
            limits += _quotas(group)
    return min(limits, default=None)


def _quotas(group: Path) -> list[float]:
    """Quota of one control group: in one file for version 2, in two for version 1."""
    quotas = []
    for files in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        try:
            quota, period = " ".join((group / file).read_text() for file in files).split()
            quotas.append(int(quota) / int(period))
        except (OSError, ValueError, ZeroDivisionError):  # not there, or `max`
            continue
    return [quota for quota in quotas if quota > 0]  # -1 is no limit


def gemm_rate(threads: int, seconds: float = 0.12) -> float:
    """GFLOP/s of a matrix product of the usual size: the best of several short measurements."""
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


def default_jobs() -> int:
    """Number of runs to train side by side: the usable cores, or fewer if a control group limits them."""
    limit = cgroup_limit()
    cores = usable_cores()
    return cores if limit is None else max(1, min(cores, int(limit)))


def default_torch_threads() -> int:
    from rl_training.runtime.config.controls import ControlsConfig

    return ControlsConfig().torch_threads


def default_device() -> str:
    """Device that `device: auto` takes."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def dataset_cache() -> Path:
    """Directory of packed and built-in datasets."""
    from rl_training.data.packing.cache import cache_dir

    return cache_dir()


def build_algorithms() -> dict[str, Exception | None]:
    """Build every registered algorithm once; a broken plugin shows here, not after an hour."""
    from rl_training.algorithms.registry import list_algorithm_specs
    from rl_training.spec import ProblemSpec

    problem = ProblemSpec(3, "continuous", 1, (-1.0,), (1.0,))
    outcomes: dict[str, Exception | None] = {}
    for spec in list_algorithm_specs():
        try:
            spec.algorithm(problem)
            outcomes[spec.name] = None
        except Exception as error:
            outcomes[spec.name] = error
    return outcomes
