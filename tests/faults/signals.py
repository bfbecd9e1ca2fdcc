"""SIGINT, SIGTERM and SIGHUP in every phase of training: saved, exit code 130, resumed equal."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

from rl_training.cli.main import main
from rl_training.stop_signals import REPEAT_SECONDS
from tests.faults.kills import verdict_of
from tests.faults.support.processes import Child
from tests.faults.support.twins import Twin, profile_values
from tests.faults.support.verdicts import Case, Tally, Verdict

INTERRUPTED = 130
SOON = 10.0  # seconds; a second signal ends a process long before
NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# where the signal is sent from: a function that every run passes in this phase
PHASES = {
    "loading": ("rl_training.runtime.assemble", "build_experience"),
    "collecting": ("rl_training.runtime.experience.online", "Online.__next__"),
    "updating": ("rl_training.algorithms.base", "Algorithm.update"),
    "evaluating": ("rl_training.runtime.evaluation.evaluator", "Evaluator.run"),
    "saving": ("rl_training.runtime.checkpoints.store", "write_checkpoint"),
}
PROFILES = ("sac", "sac sync", "sac async")


def cases(rng: random.Random, base: Path, quick: bool) -> Iterator[Case]:
    grid = [
        (profile, phase, number, group, again)
        for profile in PROFILES
        for phase in PHASES
        for number in NUMBERS
        for group in (False, True)
        for again in (False, True)
        if not (again and phase == "loading")  # there is nothing to save before the first tick
    ]
    for profile, phase, number, group, again in rng.sample(grid, 4) if quick else grid:
        call = rng.randrange(1, 3) if phase in ("evaluating", "saving") else rng.randrange(1, 150)
        call = 1 if phase == "loading" else call
        name = (
            f"{profile}, {number.name} to the {'group' if group else 'process'}, "
            f"{phase} {call}{', twice' if again else ''}"
        )
        attack = partial(interrupt, profile, phase, call, number, group, again, base)
        yield Case(name, attack, timeout=60)


def interrupt(
    profile: str,
    phase: str,
    call: int,
    number: signal.Signals,
    group: bool,
    again: bool,
    base: Path,
    work: Path,
) -> Tally:
    twin = Twin(base, profile, profile_values(profile, base))
    values = {**twin.values, "output_dir": str(work / "runs")}
    config = work / "config.yaml"
    config.write_text(yaml.safe_dump(values))
    (work / "runs").mkdir()

    def run() -> int:
        send = partial(os.killpg, os.getpgid(0)) if group else partial(os.kill, os.getpid())
        hook(phase, call, lambda: send(number), wait=again)
        return main(["train", str(config), "--quiet"])

    child = Child(run, work / "interrupted.output")
    if again:
        _signal_again(child, number, group, work)
    began = time.monotonic()
    ended = child.wait(SOON if again else 30.0)
    what = f"{number.name} while {phase}"
    if ended.code is None:
        return Tally.of(Verdict.HANG, f"{what}: alive after {time.monotonic() - began:.0f} s")
    if "Traceback" in ended.output:
        return Tally.of(Verdict.FOREIGN, f"{what}: {ended.tail}")
    # before the first tick there is nothing to save, and a signal may end the process as usual
    at_once = (INTERRUPTED, -number) if again or phase == "loading" else (INTERRUPTED,)
    if ended.code not in at_once:
        return Tally.of(Verdict.OTHER, f"{what}: exit code {ended.code}: {ended.tail}")
    return verdict_of(values, twin, work)


def hook(phase: str, call: int, send: Callable[[], object], *, wait: bool) -> None:
    """Send a signal from within the n-th call of a function; with `wait` the call takes an hour."""
    module_name, path = PHASES[phase]
    holder: Any = import_module(module_name)
    *classes, name = path.split(".")
    for part in classes:
        holder = getattr(holder, part)
    function, count = getattr(holder, name), 0

    def hooked(*arguments: Any, **options: Any) -> Any:
        nonlocal count
        count += 1
        if count == call:
            send()
            if wait:
                sys.stderr.write("first signal sent\n")
                until = time.monotonic() + 3600
                while time.monotonic() < until:
                    time.sleep(0.05)
        return function(*arguments, **options)

    setattr(holder, name, hooked)


def _signal_again(child: Child, number: signal.Signals, group: bool, work: Path) -> None:
    """Wait until the child says that it has sent itself the first signal; then send the second."""
    output, until = work / "interrupted.output", time.monotonic() + 20
    while time.monotonic() < until:
        if output.exists() and b"first signal sent" in output.read_bytes():
            break
        if Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return  # the first signal has ended it
        time.sleep(0.01)
    time.sleep(2 * REPEAT_SECONDS)  # sooner, the two count as one
    if group:
        os.killpg(child.pid, number)
    else:
        os.kill(child.pid, number)
