"""State of many trials in words: one line for each, one for all. Needs no torch."""

from __future__ import annotations

import time
from collections.abc import Mapping

from rl_training.runs.durations import duration
from rl_training.sweeps.status import State, TrialStatus


class TrialBoard:
    """Statuses of trials by name, and what they add up to."""

    def __init__(self, labels: Mapping[str, str], *, jobs: int = 1) -> None:
        self.labels = dict(labels)
        self.jobs = jobs
        self.statuses = dict.fromkeys(labels, TrialStatus())
        self._began = time.monotonic()

    def count(self, state: State) -> int:
        return sum(status.state == state for status in self.statuses.values())

    def summary(self) -> str:
        """Say how many trials are in each state, and how long the rest will take."""
        states: tuple[State, ...] = (
            "ended",
            "running",
            "starting",
            "paused",
            "waiting",
            "interrupted",
            "stopped",
            "failed",
        )
        words = [f"{self.count(state)} {state}" for state in states if self.count(state)]
        left = self.seconds_left()
        return ", ".join(words) + (f"; about {duration(left)} left" if left is not None else "")

    def seconds_left(self) -> float | None:
        """Estimate the time to the end from the speed of those that run; None before there is one."""
        running = [
            s for s in self.statuses.values() if s.state == "running" and s.steps_per_second > 0
        ]
        if not running:
            return None
        left = [status.seconds_left or 0.0 for status in running]
        whole = sum(status.total / status.steps_per_second for status in running) / len(running)
        unbegun = self.count("waiting") + self.count("starting") + self.count("paused")
        return max(
            max(left), (sum(left) + unbegun * whole) / max(1, min(self.jobs, len(left) + unbegun))
        )


def trial_cells(status: TrialStatus) -> tuple[str, str, str, str, str]:
    """Return state, position, speed, score and time left, each empty if it means nothing."""
    state = status.state if status.attempt < 2 else f"{status.state} (attempt {status.attempt})"
    if status.state == "failed":
        return (state, "", "", status.error.split("\n")[0], "")
    if status.state in ("waiting", "starting"):
        return (state, "", "", "", "")
    position = f"{status.step}/{status.total}"
    if status.state != "running":
        reason = status.stop_reason if status.state == "ended" else None
        return (state, position, "", status.score, reason or "")
    left = status.seconds_left
    rate = status.updates_per_second
    speed = f"{rate:.0f} updates/s" if rate else ""
    return (state, position, speed, status.score, "" if left is None else f"{duration(left)} left")


def trial_text(status: TrialStatus) -> str:
    """Say in one line where a trial is."""
    return "  ".join(cell for cell in trial_cells(status) if cell)
