"""A crash, or a disk error, at the n-th file operation of a training run and of a resume."""

from __future__ import annotations

import random
import shutil
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from rl_training.runtime import Callback, TrainConfig, TrainerState, train
from tests.faults.kills import verdict_of
from tests.faults.support.disk import CRASHED, ERRORS, MODES, FailingDisk
from tests.faults.support.processes import DONE, FOREIGN, REFUSED, Child, call, guarded
from tests.faults.support.twins import Twin, go_on, profile_values
from tests.faults.support.verdicts import Case, Tally, Verdict

PROFILE = "tiny"
NEVER = 10**9
HALFWAY = 25  # step after the first checkpoint


class StopHalfway(Callback):
    """Ends the process without any tidying up."""

    def on_collect_end(self, state: TrainerState, env_steps: int) -> None:
        if state.global_step >= HALFWAY:
            raise SystemExit


def cases(rng: random.Random, base: Path, quick: bool) -> Iterator[Case]:
    """Crash at every operation; every kind of error at a sample of them."""
    Twin(base, PROFILE, profile_values(PROFILE, base))
    half_done(base)
    for phase in ("train", "resume"):
        for mode in MODES:
            total = operations(base, phase, mode)
            numbers = list(range(1, total + 1))
            if quick:
                numbers = rng.sample(numbers, 1)
            elif mode != "crash":
                numbers = sorted(rng.sample(numbers, min(40, total)))
            for number in numbers:
                name = f"{phase}, {mode} at {number} of {total}"
                yield Case(name, partial(fail_and_go_on, phase, mode, number, base))


def half_done(base: Path) -> Path:
    """A run of which the process ended after its first checkpoint, to resume from."""
    output = base / "half"
    if not output.exists():
        values = profile_values(PROFILE, output)
        call(lambda: train(TrainConfig(**values), callbacks=[StopHalfway()]), base / "half.output")
        assert list(output.glob("*/checkpoints/step_20")), (base / "half.output").read_text()
    return output


def operations(base: Path, phase: str, mode: str) -> int:
    """Count the operations of a phase when none fails."""
    work = base / f"count-{phase}-{mode}".replace(" ", "_")
    work.mkdir()
    values = start_of(phase, base, work)
    counted = work / "operations"

    def run() -> int:
        disk = FailingDisk(work / "runs", NEVER, mode)
        disk.install()
        go_on(values)
        counted.write_text(str(disk.count))
        return DONE

    ended = Child(run, work / "output").wait()
    assert ended.code == DONE, ended.output
    return int(counted.read_text())


def start_of(phase: str, base: Path, work: Path) -> dict[str, Any]:
    """Configuration of a run in `work`, which for "resume" is half done."""
    if phase == "resume":
        shutil.copytree(half_done(base), work / "runs", symlinks=True)
    else:
        (work / "runs").mkdir()
    return profile_values(PROFILE, work / "runs")


def fail_and_go_on(phase: str, mode: str, number: int, base: Path, work: Path) -> Tally:
    twin = Twin(base, PROFILE, profile_values(PROFILE, base))
    values = start_of(phase, base, work)

    def run() -> int:
        disk = FailingDisk(work / "runs", number, mode)
        disk.install()
        code = guarded(lambda: go_on(values))
        failed = disk.log[number - 1] if len(disk.log) >= number else "no operation"
        sys.stderr.write(f"failed: {failed}\n")
        return code

    ended = Child(run, work / "failing.output").wait()
    if ended.code is None:
        return Tally.of(Verdict.HANG, f"{mode}: {ended.tail}")
    if ended.code == FOREIGN:
        return Tally.of(Verdict.FOREIGN, f"{mode}: {ended.tail}")
    expected = {CRASHED} if "crash" in mode else {DONE, REFUSED}
    if ended.code not in expected:
        return Tally.of(Verdict.OTHER, f"{mode}: exit code {ended.code}: {ended.tail}")
    assert mode in (*ERRORS, "crash", "torn crash", "short write")
    return verdict_of(values, twin, work)
