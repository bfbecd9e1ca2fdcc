"""Building of the sdist and of the wheel from it, with what is installed: no network is needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class Release(NamedTuple):
    sdist: Path
    wheel: Path


def build_release(directory: Path) -> Release:
    """Build into a new directory; `python -m build` makes the wheel from the sdist."""
    command = [
        sys.executable,
        "-m",
        "build",
        "--no-isolation",
        "--outdir",
        str(directory),
        str(ROOT),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the build failed:\n{done.stdout}{done.stderr}")
    (sdist,), (wheel,) = directory.glob("*.tar.gz"), directory.glob("*.whl")
    return Release(sdist, wheel)
