"""Plugin that notes when a run made its first and its newest update."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rl_training.runs.metrics import Sink, register_logger

CLOCK = "clock.json"


class Clock(Sink):
    """Writes the times of the first and the newest row of losses."""

    def __init__(self, run_dir: Path) -> None:
        self.path = run_dir / CLOCK
        self.first: float | None = None

    def write(self, row: Mapping[str, Any]) -> None:
        if any(key.startswith("train/") for key in row):
            now = time.time()
            self.first = self.first or now
            self.path.write_text(json.dumps([self.first, now]))


def clock_of(run_dir: str | Path) -> tuple[float, float]:
    first, last = json.loads((Path(run_dir) / CLOCK).read_text())
    return first, last


register_logger("clock", Clock)
