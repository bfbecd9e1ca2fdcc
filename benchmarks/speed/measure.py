"""Runs contests and makes rows of them; whoever cannot take part leaves a reason."""

from __future__ import annotations

import gc
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

from benchmarks.speed import end_to_end, flops, parts, scale, seeds
from benchmarks.speed.contests import CONTESTS, Contest
from benchmarks.speed.goals import Goal
from benchmarks.speed.problem import Problem
from benchmarks.speed.timing import (
    Contestant,
    Measured,
    NotMeasuredError,
    Spread,
    Timing,
    interleave,
)

Row = dict[str, Any]
OURS = "ours"
SPECIAL: dict[str, Callable[[Problem], Measured]] = {
    "dqn_step": partial(end_to_end.measure, name="dqn_step"),
    "sac_step": partial(end_to_end.measure, name="sac_step"),
    "two_seeds": seeds.measure,
}


def measure(problem: Problem, goals: Sequence[Goal]) -> Iterator[Row]:
    """A row for each goal; those of one contest are measured together."""
    for name in dict.fromkeys(goal.contest for goal in goals):
        wanted = [goal for goal in goals if goal.contest == name]
        if name in SPECIAL:
            (goal,) = wanted
            found = attempt(lambda name=name: SPECIAL[name](problem))
            yield _row(goal, found)
        else:
            yield from _contest(CONTESTS[name], wanted, problem)
        gc.collect()


@contextmanager
def quiet() -> Iterator[None]:
    """Peers print what they load."""
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        yield


def attempt(work: Callable[[], Any]) -> Any:
    """What it returns, or the error: one row must not cost the others."""
    try:
        with quiet():
            return work()
    except NotMeasuredError as error:
        return error
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        return error


def _contest(contest: Contest, goals: Sequence[Goal], problem: Problem) -> Iterator[Row]:
    def build(who: Callable[[Problem], Contestant]) -> Contestant:
        contestant = who(problem)
        contestant.run(contestant.unit)  # what does not run must not stop the others later
        return contestant

    built = {OURS: attempt(lambda: build(contest.ours))}
    for goal in goals:
        built[goal.peer] = attempt(lambda peer=goal.peer: build(contest.peers[peer]))
    able = {name: who for name, who in built.items() if isinstance(who, Contestant)}
    timings: dict[str, Timing] = {}
    if OURS in able and len(able) > 1:
        settings = problem.settings
        timings = interleave(able, rounds=settings.rounds, seconds=settings.seconds)
    for goal in goals:
        if goal.peer in timings:
            ours, theirs = timings[OURS], timings[goal.peer]
            yield _row(goal, _judged(goal, contest, ours, theirs), ours, theirs)
        else:
            yield _row(goal, built[OURS] if OURS not in able else built[goal.peer])


def _judged(goal: Goal, contest: Contest, ours: Timing, theirs: Timing) -> Measured:
    if goal.peer != "gemm":
        return Measured.ratios_of(ours.cpu, theirs.cpu)
    work = contest.flops / flops.GEMM_FLOPS  # products that our update is worth
    shares = [work * b / a for a, b in zip(ours.cpu, theirs.cpu, strict=True)]
    return Measured(ours.cpu, theirs.cpu, Spread(shares))


def measure_parts(problem: Problem, contest: str) -> dict[str, Any]:
    found = attempt(lambda: parts.measure(problem, contest))
    return found if isinstance(found, dict) else _missing(found)


def measure_scale(problem: Problem, directory: Path) -> dict[str, Any]:
    found = attempt(lambda: scale.measure(problem, directory))
    return found if isinstance(found, dict) else _missing(found)


def _missing(error: Exception) -> dict[str, Any]:
    if isinstance(error, NotMeasuredError):
        return {"not_measured": str(error), "crashed": False}
    return {"not_measured": f"{type(error).__name__}: {error}", "crashed": True}


def _row(goal: Goal, found: Any, ours: Timing | None = None, theirs: Timing | None = None) -> Row:
    row: Row = {
        "id": goal.id,
        "title": goal.title,
        "keep": goal.keep,
        "aim": goal.aim,
        "at_least": goal.at_least,
    }
    if not isinstance(found, Measured):
        return {**row, **_missing(found)}
    ratio = found.ratio.median
    row |= {
        "ours_us": found.ours,
        "theirs_us": found.theirs,
        "ratios": found.ratio.rounds,
        "ratio": ratio,
        "quartiles": found.ratio.quartiles,
        "within_keep": goal.reaches(ratio, goal.keep),
        "within_aim": goal.reaches(ratio, goal.aim),
        **found.remarks,
    }
    if ours is not None and theirs is not None:
        row |= {"ours_wall_us": ours.wall, "theirs_wall_us": theirs.wall}
    return row
