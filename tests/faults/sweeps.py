"""SIGKILL at random moments of a sweep: its driver, one of its processes, or all; every run ends as its twin."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from rl_training.sweeps import Sweep
from tests.faults.support.twins import Twin, differences, profile_values
from tests.faults.support.verdicts import Case, Tally, Verdict

PROFILES = ("sac", "td3_bc", "dqn", "sac async")
SEEDS = (3, 4, 5)
VICTIMS = ("driver", "process", "all")
SECONDS = 300.0  # for a sweep to come to its end
Attack = tuple[
    str, float, int
]  # the victim, seconds after the start, and which of several processes


def cases(rng: random.Random, base: Path, quick: bool) -> Iterator[Case]:
    for number in range(1 if quick else 4):
        for profile in PROFILES[:1] if quick else PROFILES:
            attacks = [
                (rng.choice(VICTIMS), rng.uniform(1.0, 8.0), rng.randrange(100))
                for _ in range(1 if quick else rng.choice((2, 3, 4)))
            ]
            words = ", ".join(f"{victim} {seconds:.2f}" for victim, seconds, _ in attacks)
            yield Case(
                f"{profile} {number}: {words}", partial(kill_and_go_on, profile, attacks, base)
            )


def kill_and_go_on(profile: str, attacks: Sequence[Attack], base: Path, work: Path) -> Tally:
    """Start the same command again after every kill, to the end, and compare each run with its twin."""
    values = profile_values(profile, base)
    twins = {
        seed: Twin(base, f"sweep {profile} {seed}", {**values, "seed": seed}) for seed in SEEDS
    }
    (work / "space.yaml").write_text(json.dumps({"base": _without_place(values), "seeds": SEEDS}))
    injected = 0
    for victim, seconds, which in attacks:
        injected += _attacked(work, victim, seconds, which)
    ended = subprocess.run(
        _command(), cwd=work, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    if ended.returncode != 0:
        return Tally.of(
            Verdict.OTHER, f"exit code {ended.returncode}: {ended.stderr[-300:]}", injected
        )
    for trial in Sweep.from_file(work / "space.yaml").trials(work / "runs" / "space"):
        unequal = differences(twins[trial.config.seed].run, work / "runs" / "space" / trial.name)
        if unequal:
            return Tally.of(Verdict.NOT_EQUAL, f"{trial.name}: {', '.join(unequal)}", injected)
    return Tally.of(Verdict.EQUAL, injected=injected)


def _without_place(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in ("output_dir", "seed")}


def _command() -> list[str]:
    return [sys.executable, "-m", "rl_training", "sweep", "space.yaml", "--jobs", "2", "--quiet"]


def _attacked(work: Path, victim: str, seconds: float, which: int) -> bool:
    """Run the sweep for a while and kill the victim; False if the sweep had ended by then."""
    process = subprocess.Popen(
        _command(),
        cwd=work,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    time.sleep(seconds)
    if process.poll() is not None:
        return False
    members = [pid for pid in _group(process.pid) if pid != process.pid]
    victims = {
        "driver": [process.pid],
        "process": members[which % len(members) :][:1] if members else [process.pid],
        "all": [process.pid, *members],
    }[victim]
    for pid in victims:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if victim == "process":  # the driver goes on, or says what died
        process.wait(SECONDS)
    process.wait(SECONDS)
    return True


def _group(leader: int) -> list[int]:
    """List the processes of a session, by `/proc`."""
    members = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError):
            fields = entry.read_text().rpartition(")")[2].split()
            if int(fields[3]) == leader:
                members.append(int(entry.parent.name))
    return sorted(members)
