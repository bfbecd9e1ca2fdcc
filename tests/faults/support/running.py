"""Runs the cases of a kind, each in a forked process, several at a time, and adds up their verdicts."""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path

from rl_training.runtime import TrainConfig, train
from tests.faults.support.processes import DONE, Child
from tests.faults.support.twins import profile_values
from tests.faults.support.verdicts import Case, Failure, Tally, Verdict

KINDS = (
    "kills", "sweeps", "file-operations", "bits", "signals", "environments", "hostile-files", "fuzz",
)  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """Options of a run of the suite, as far as they choose cases."""

    seed: int = 0
    quick: bool = False
    case: str | None = None  # the name of a single one
    jobs: int = 2

    def command(self, kind: str, case: str) -> str:
        quick = " --quick" if self.quick else ""
        return f"python -m tests.faults --only {kind} --seed {self.seed}{quick} --case '{case}'"


@dataclass
class KindResult:
    """Verdicts on one kind of fault."""

    kind: str
    tally: Tally = field(default_factory=Tally)
    failures: list[Failure] = field(default_factory=list)
    seconds: float = 0.0


def cases_of(kind: str, base: Path, plan: Plan) -> Iterator[Case]:
    """Cases of a kind; `base` holds what they share, such as twins."""
    module = import_module(f"tests.faults.{kind.replace('-', '_')}")
    cases: Iterator[Case] = module.cases(random.Random(f"{kind} {plan.seed}"), base, plan.quick)
    return (case for case in cases if plan.case in (None, case.name))


@cache
def warm_up() -> None:
    """Train once in this process: whatever is imported or made on first use is there in all forks."""
    with tempfile.TemporaryDirectory(prefix="faults-warm-") as directory:
        train(TrainConfig(**profile_values("tiny", Path(directory))))


def run_kind(kind: str, plan: Plan, report: Callable[[str], None] = lambda _: None) -> KindResult:
    """Run all cases of a kind."""
    warm_up()
    began, result = time.monotonic(), KindResult(kind)
    base = Path(tempfile.mkdtemp(prefix=f"faults-{kind}-"))
    try:
        _run_cases(cases_of(kind, base, plan), base, plan, result, report)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    result.seconds = time.monotonic() - began
    return result


@dataclass
class _Running:
    case: Case
    directory: Path
    child: Child
    until: float


def _run_cases(
    cases: Iterator[Case],
    base: Path,
    plan: Plan,
    result: KindResult,
    report: Callable[[str], None],
) -> None:
    running: list[_Running] = []
    number, exhausted = 0, False
    try:
        while running or not exhausted:
            while not exhausted and len(running) < plan.jobs:
                case = next(cases, None)
                if case is None:
                    exhausted = True
                    break
                number += 1
                running.append(_start(case, base / f"case-{number}"))
            for entry in list(running):
                tally = _tally_if_ended(entry)
                if tally is not None:
                    running.remove(entry)
                    _count(result, entry.case, tally, plan)
                    shutil.rmtree(entry.directory, ignore_errors=True)
                    report(f"{result.kind}: {number} cases, {len(result.failures)} failed")
            time.sleep(0.005)
    finally:
        for entry in running:
            entry.child.end_group()


def _start(case: Case, directory: Path) -> _Running:
    directory.mkdir()

    def run() -> int:
        tally = case.run(directory / "work")
        (directory / "tally.aside").write_text(tally.to_json())
        (directory / "tally.aside").rename(directory / "tally.json")
        return DONE

    (directory / "work").mkdir()
    child = Child(run, directory / "case.output")
    return _Running(case, directory, child, time.monotonic() + case.timeout)


def _tally_if_ended(entry: _Running) -> Tally | None:
    code = entry.child.poll()
    if code is None:
        if time.monotonic() < entry.until:
            return None
        entry.child.wait(timeout=0)
        return Tally.of(Verdict.HANG, f"no end after {entry.case.timeout:.0f} s")
    entry.child.end_group()
    written = entry.directory / "tally.json"
    if code == DONE and written.exists():
        return Tally.from_json(written.read_text())
    output = (entry.directory / "case.output").read_bytes().decode(errors="replace")
    return Tally.of(Verdict.OTHER, f"the attack itself failed ({code}): {output[-600:]}")


def _count(result: KindResult, case: Case, tally: Tally, plan: Plan) -> None:
    result.tally.merge(tally)
    result.failures += [
        Failure(result.kind, case.name, verdict.value, note, plan.command(result.kind, case.name))
        for verdict, note in tally.broken
    ]


def sample(rng: random.Random, items: Sequence[object], quick: bool, count: int) -> list[object]:
    """All items, or `count` of them for a quick run, in their order."""
    if not quick or count >= len(items):
        return list(items)
    return [items[index] for index in sorted(rng.sample(range(len(items)), count))]
