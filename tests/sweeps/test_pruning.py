"""Pruning decides by fixed tables: the values of trials of earlier rounds at fixed steps."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from rl_training.sweeps.pruning import Reached, bracket_of, goes_on, rungs_of


def table(values: list[float | None], rung: int = 100) -> list[Reached]:
    """Trials 0, 1, ... with these values at a rung; None has not come so far."""
    return [
        Reached(number, {} if value is None else {rung: value})
        for number, value in enumerate(values)
    ]


@pytest.mark.parametrize(
    ("pruner", "budget", "interval", "rungs"),
    [
        ("none", 1_000, 100, ()),
        ("median", 1_000, 100, (300, 500, 800)),
        ("median", 1_000, 400, (400, 800)),
        ("hyperband", 2_700, 100, (100, 300, 900)),
        ("hyperband", 10_000, 2_000, (2_000, 4_000)),
        ("hyperband", 1_000, 1_000, ()),
        ("median", 1_000, 5_000, ()),
    ],
)
def test_rungs_are_evaluations_inside_the_budget(
    pruner: Any, budget: int, interval: int, rungs: tuple[int, ...]
) -> None:
    assert rungs_of(pruner, budget, interval) == rungs


@pytest.mark.parametrize(
    ("value", "earlier", "mode", "expected"),
    [
        (1.0, [1, 2, 3, 4, 5], "max", False),
        (3.0, [1, 2, 3, 4, 5], "max", True),
        (2.9, [1, 2, 3, 4, 5], "max", False),
        (2.9, [1, 2, 3, 4, 5], "min", True),
        (3.1, [1, 2, 3, 4, 5], "min", False),
        (-9.0, [1, 2, 3, 4], "max", True),  # four say too little
        (-9.0, [1, 2, 3, 4, None, None], "max", True),  # and those that did not come so far nothing
        (2.5, [1, 2, 3, 4, None, 5, None], "max", False),
    ],
)
def test_the_median_is_that_of_earlier_trials_at_the_same_step(
    value: float, earlier: list[float | None], mode: Any, expected: bool
) -> None:
    trial = Reached(50, {100: value})
    assert goes_on("median", (100, 200), 100, trial, table(earlier), mode) is expected


def members(bracket: int, number: int, rungs: int = 3) -> list[int]:
    """The first trials of a bracket."""
    return [n for n in range(1_000) if bracket_of(n, rungs) == bracket][:number]


def test_hyperband_has_as_many_trials_in_each_bracket_as_its_paper() -> None:
    counts = Counter(bracket_of(number, 3) for number in range(4_900))
    # 27, 12, 6 and 4 of 49
    for bracket, size in enumerate((27, 12, 6, 4)):
        assert counts[bracket] == pytest.approx(100 * size, rel=0.15)
    assert bracket_of(7, 3) == bracket_of(7, 3)


def test_hyperband_keeps_the_best_third_of_a_bracket() -> None:
    first, *others = members(0, 6)
    earlier = [
        Reached(number, {100: value}) for number, value in zip(others, (1, 2, 3, 4, 5), strict=True)
    ]

    def decide(value: float, mode: Any = "max", rung: int = 100) -> bool:
        return goes_on(
            "hyperband", (100, 300, 900), rung, Reached(first, {rung: value}), earlier, mode
        )

    assert decide(5.5), "first of six"
    assert decide(4.5), "second of six"
    assert not decide(3.5), "third of six"
    assert decide(1.5, "min")
    assert not decide(2.5, "min")
    assert decide(-9.0, rung=300), "nobody has come there"


def test_hyperband_compares_within_a_bracket_and_lets_late_brackets_begin() -> None:
    rungs = (100, 300, 900)
    strong = [Reached(number, {100: 9.0, 300: 9.0}) for number in members(0, 9)]
    (own,) = members(1, 1)
    assert goes_on("hyperband", rungs, 100, Reached(own, {100: 0.0}), strong, "max")
    assert goes_on("hyperband", rungs, 300, Reached(own, {300: 0.0}), strong, "max")
    rivals = [Reached(number, {300: 9.0}) for number in members(1, 4)[1:]]
    assert not goes_on("hyperband", rungs, 300, Reached(own, {300: 0.0}), rivals, "max")
    (last,) = members(3, 1)
    assert all(
        goes_on("hyperband", rungs, rung, Reached(last, {rung: -9.0}), strong, "max")
        for rung in rungs
    )
