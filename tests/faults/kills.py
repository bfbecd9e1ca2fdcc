"""SIGKILL at random moments of training and of resuming; the run ends as if nothing had happened."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tests.faults.support.processes import DONE, REFUSED, Child, guarded
from tests.faults.support.twins import (
    PROFILES,
    Twin,
    differences,
    go_on,
    go_on_to_the_end,
    profile_values,
    run_of,
)
from tests.faults.support.verdicts import Case, Tally, Verdict

ROUNDS = 20  # of all profiles in the full run; each case kills once or twice


def cases(rng: random.Random, base: Path, quick: bool) -> Iterator[Case]:
    profiles = [name for name in PROFILES if name != "tiny"]
    if quick:
        profiles = ["td3_bc", "sac async"]
    for number in range(2 if quick else ROUNDS):
        for profile in profiles:
            moments = [rng.random() for _ in range(rng.choice((1, 1, 2)))]
            name = f"{profile} {number}: " + ", ".join(f"{moment:.3f}" for moment in moments)
            yield Case(name, partial(kill_and_resume, profile, moments, base))


def kill_and_resume(profile: str, moments: Sequence[float], base: Path, work: Path) -> Tally:
    """Kill after shares of the twin's duration, then go on and compare."""
    twin = Twin(base, profile, profile_values(profile, base))
    values = {**twin.values, "output_dir": str(work / "runs")}
    kills = sum(killed_after(values, moment * twin.seconds, work) for moment in moments)
    return verdict_of(values, twin, work, injected=kills)


def killed_after(values: dict[str, Any], seconds: float, work: Path) -> bool:
    """Train or resume, and kill the process; False if it had ended by then."""
    child = Child(lambda: guarded(lambda: go_on(values)), work / "killed.output")
    time.sleep(seconds)
    os.kill(child.pid, signal.SIGKILL)  # its workers are left to notice by themselves
    _, status = os.waitpid(child.pid, 0)
    return os.WIFSIGNALED(status)


def verdict_of(values: dict[str, Any], twin: Twin, work: Path, *, injected: int = 1) -> Tally:
    """Go on with a run and compare its end with the twin."""
    ended = go_on_to_the_end(values, work / "resumed.output")
    if ended.code is None:
        return Tally.of(Verdict.HANG, f"resume does not end: {ended.tail}", injected)
    if ended.code == REFUSED:
        return Tally.of(Verdict.OTHER, f"resume refuses: {ended.tail}", injected)
    if ended.code != DONE:
        return Tally.of(Verdict.FOREIGN, f"resume fails ({ended.code}): {ended.tail}", injected)
    run = run_of(Path(values["output_dir"]))
    assert run is not None
    unequal = differences(twin.run, run)
    if unequal:
        return Tally.of(Verdict.NOT_EQUAL, f"after resume: {', '.join(unequal)}", injected)
    return Tally.of(Verdict.EQUAL, injected=injected)
