"""What the numbers were measured with."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from benchmarks.speed.problem import Settings

PACKAGES = (
    "rl-training", "torch", "numpy", "gymnasium", "mujoco",
    "d3rlpy", "stable-baselines3", "sb3-contrib", "jax", "jaxlib",
)  # fmt: skip
ROOT = Path(__file__).parents[2]


def describe(settings: Settings) -> dict[str, Any]:
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    checkouts = {"rl-training": ROOT, "CORL": settings.corl, "CleanRL": settings.cleanrl}
    return {
        "versions": versions,
        "commits": {name: _commit(path) for name, path in checkouts.items() if path is not None},
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "threads": {"torch": torch.get_num_threads(), "XLA_FLAGS": os.environ["XLA_FLAGS"]},
    }


def cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _commit(checkout: Path) -> str:
    if not (checkout / ".git").exists() or shutil.which("git") is None:
        return "not a git checkout"
    command = ["git", "-C", str(checkout), "rev-parse", "--short=10", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
