"""What our update spends its time on: its recorded operations are timed one by one."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.speed import ours
from benchmarks.speed.problem import HIDDEN, Problem
from rl_training.engine.capture import tensors_in
from rl_training.engine.memory import FreshCall
from rl_training.runtime.run import Run

PRODUCTS = frozenset({"addmm", "mm", "bmm", "baddbmm", "addmv", "mv"})
KINDS = ("products", "normalisation", "other operations", "the rest")
UPDATES = 200
UNIT = 20  # updates after which the work of every algorithm repeats

RUNS: dict[str, Callable[[Problem], Run]] = {
    **{
        algo: partial(lambda problem, algo: ours.offline_run(algo, problem.dataset), algo=algo)
        for algo in ("td3_bc", "iql", "awac", "cql", "rebrac", "crr")
    },
    "sac": lambda problem: ours.online_run("sac", problem.fields),
    "tqc": lambda problem: ours.online_run(
        "tqc", problem.fields, {"num_critics": 2, "critic_hidden_sizes": HIDDEN}
    ),
    "td3": lambda problem: ours.online_run("td3", problem.fields),
    "ten_critics": lambda problem: ours.online_run(
        "redq",
        problem.fields,
        {"num_critics": 10, "subset_size": 10, "gradient_updates_per_step": 1},
    ),
    "rlpd": lambda problem: ours.rlpd_run(problem.fields, problem.dataset),
}


class Clocked:
    """An operation, and the seconds it took so far."""

    def __init__(self, call: Any) -> None:
        self.call, self.seconds, self.times = call, 0.0, 0
        self.kind = kind_of(call)

    def __call__(self) -> None:
        start = time.perf_counter()
        self.call()
        self.seconds += time.perf_counter() - start
        self.times += 1

    @property
    def flops(self) -> float:
        """Of a product, so far."""
        *_, a, b = tensors_in(self.call.args)
        return float(self.times * 2 * a.numel() * (b.shape[-1] if b.ndim > 1 else 1))


def kind_of(call: Any) -> str:
    name = call.name if isinstance(call, FreshCall) else call.func.__name__
    if name in PRODUCTS:
        return "products"
    return "normalisation" if "layer_norm" in name else "other operations"


def measure(problem: Problem, contest: str) -> dict[str, Any]:
    """Microseconds per update, the share of each kind, and the rate of the products."""
    run = RUNS[contest](problem)
    contestant = ours.contestant(run)
    contestant.run(2 * UNIT)
    engine: Any = run.algorithm.engine
    operations = []
    for program in engine.programs:
        program.calls = [Clocked(call) for call in program.calls]
        operations += program.calls
    updates = UNIT if problem.settings.quick else UPDATES
    start = time.perf_counter()
    contestant.run(updates)
    seconds = time.perf_counter() - start
    shares = {
        kind: sum(each.seconds for each in operations if each.kind == kind) / seconds
        for kind in KINDS
    }
    shares["the rest"] = 1 - sum(shares.values())
    products = [each for each in operations if each.kind == "products"]
    rate = sum(each.flops for each in products) / sum(each.seconds for each in products)
    return {
        "contest": contest,
        "us": seconds / updates * 1e6,
        "shares": shares,
        "gflop_per_second": rate / 1e9,
    }
