"""Gain of each part of the engine: updates with all of them beside updates without one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any
from unittest.mock import patch

from benchmarks.speed import ours, parts
from benchmarks.speed.problem import Problem
from benchmarks.speed.timing import interleave
from rl_training.engine import EagerEngine, memory, program, rewrites

ALL = "all"
WARM_UP = 2 * parts.UNIT
# a part of the engine, and what stands in for it when it is left out
WITHOUT: dict[str, tuple[Any, str, Callable[..., Any]] | None] = {
    "capture and all below (`EagerEngine`)": None,
    "memory pool": (memory.Pool, "place", lambda *_: None),
    "of it, results in place": (memory._Placement, "_spent_argument", lambda *_: None),
    "common subexpressions": (program, "_without_duplicates", lambda calls, *_: list(calls)),
    "joins in place": (program, "_join_in_place", lambda calls, *_: calls),
    "accumulated products": (rewrites, "accumulate_products", lambda calls, *_: calls),
    "narrow products by transpose": (rewrites, "narrow_product", lambda *_: None),
}
CONTESTS = ("td3_bc", "iql", "awac", "crr", "rebrac", "sac", "rlpd", "cql")


@contextmanager
def left_out(part: str) -> Iterator[None]:
    replacement = WITHOUT.get(part)
    if replacement is None:
        yield
        return
    owner, name, stand_in = replacement
    with patch.object(owner, name, stand_in):
        yield


def measure(problem: Problem, contest: str) -> dict[str, Any]:
    """Time of an update with all parts as a share of that without each of them."""
    contestants = {}
    for part in (ALL, *WITHOUT):
        run = parts.RUNS[contest](problem)
        if part != ALL and WITHOUT[part] is None:
            run.algorithm.engine = EagerEngine()
        contestants[part] = ours.contestant(run, unit=parts.UNIT)
        with left_out(part):
            contestants[part].run(WARM_UP)  # captured here
        if run.algorithm.engine.eager:
            raise RuntimeError(f"without {part}, {contest} runs eagerly: nothing is compared")
    settings = problem.settings
    timings = interleave(contestants, rounds=settings.rounds, seconds=settings.seconds)
    complete = timings[ALL].cpu
    gains = {
        part: median(a / b for a, b in zip(complete, timings[part].cpu, strict=True))
        for part in WITHOUT
    }
    return {"contest": contest, "us": median(complete), "gains": gains}
