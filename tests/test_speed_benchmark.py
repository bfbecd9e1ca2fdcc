"""The speed benchmark counts, judges and publishes as it says; it is not run here."""

from __future__ import annotations

import os
from functools import partial
from typing import Any
from unittest import mock

import pytest
import torch

from rl_training.engine.capture import Recorder
from rl_training.engine.program import Program

with mock.patch.dict(os.environ):  # it limits threads by environment variables
    from benchmarks.speed import flops, goals, measure, page, parts, report, timing
    from benchmarks.speed.contests import CONTESTS


def test_arithmetic_of_updates_is_that_of_their_layers() -> None:
    row = 2 * (23 * 256 + 256 * 256 + 256)  # a critic's forward pass
    assert flops.forward((23, 256, 256, 1)) == row
    assert flops.train((23, 256, 256, 1)) == 3 * row - 2 * 23 * 256
    counted = (flops.td3_flops(), flops.sac_flops(), flops.sac_flops(members=10))
    assert [round(flop / 1e6) for flop in counted] == [413, 577, 2297]


def test_every_goal_has_someone_to_be_compared_with() -> None:
    for goal in goals.GOALS:
        assert goal.contest in measure.SPECIAL or goal.peer in CONTESTS[goal.contest].peers, goal.id
        assert goal.peer in goals.PEERS
        assert (goal.keep is None) == (goal.aim is None), goal.id
        assert goal.aim is None or goal.reaches(goal.aim, goal.keep), goal.id


def test_a_ratio_is_the_median_of_those_of_single_rounds() -> None:
    measured = timing.Measured.ratios_of([1.0, 4.0, 9.0], [2.0, 4.0, 3.0])
    assert measured.ratio.median == 1.0  # of 0.5, 1 and 3; medians of both sides would give 4 / 3
    assert measured.ratio.quartiles == (0.75, 2.0)


def test_contestants_work_in_multiples_of_their_unit_and_take_turns() -> None:
    turns: list[tuple[str, int]] = []

    def contestant(name: str, unit: int) -> timing.Contestant:
        def run(count: int) -> None:
            turns.append((name, count))
            sum(range(count * 20_000))

        return timing.Contestant(run, unit)

    pair = {"a": contestant("a", 1), "b": contestant("b", 20)}
    timings = timing.interleave(pair, rounds=4, seconds=0.002)
    assert [name for name, _ in turns[-8:]] == list("abbaabba")
    assert all(count % 20 == 0 for name, count in turns if name == "b")
    assert len(timings["a"].cpu) == len(timings["b"].cpu) == 4


def broken(problem: Any) -> timing.Contestant:
    raise ZeroDivisionError("of the peer")


def absent(problem: Any) -> timing.Contestant:
    raise timing.NotMeasuredError("it is not installed")


def test_a_peer_that_fails_or_is_missing_leaves_a_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    contest = measure.Contest(lambda problem: flops.gemm(), {"corl": broken, "d3rlpy": absent})
    monkeypatch.setitem(CONTESTS, "iql", contest)
    wanted = [goal for goal in goals.GOALS if goal.id in ("iql/corl", "iql/d3rlpy")]
    failed, missing = measure.measure(mock.Mock(), wanted)
    assert failed["not_measured"] == "ZeroDivisionError: of the peer"
    assert failed["crashed"]
    assert "of the peer" in capsys.readouterr().err
    assert missing["not_measured"] == "it is not installed"
    assert not missing["crashed"]


def test_the_page_names_rows_that_miss_their_goal_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(goals.REASONS, "sac/sb3", "Because of the test.")
    found = timing.Measured.ratios_of([9.0, 9.0], [10.0, 10.0])
    by_id = {goal.id: goal for goal in goals.GOALS}
    rows = [
        measure._row(by_id["sac/sb3"], found),
        measure._row(by_id["cql/corl"], timing.Measured.ratios_of([1.0], [10.0])),
        measure._row(by_id["td3/cleanrl"], timing.NotMeasuredError("no checkout")),
    ]
    text = page._above(rows)
    assert (
        "SAC against Stable-Baselines3: 0.900 where at most 0.61 is wanted. Because of the test."
        in text
    )
    assert "TD3 against CleanRL was not measured: no checkout." in text
    assert "CQL" not in text


def test_operations_of_a_recording_are_told_apart() -> None:
    x = torch.rand(4, 4)
    scale = torch.rand(4)

    def function() -> list[torch.Tensor]:
        normal = torch.native_layer_norm(x @ x, (4,), scale, scale, 1e-5)[0]
        return [normal.relu_().sum()]

    with Recorder() as recorder:
        outputs = function()
    kinds = [parts.kind_of(call) for call in Program(recorder, outputs).calls]
    assert kinds == ["products", "normalisation", "other operations", "other operations"]


def test_the_page_says_what_products_alone_would_leave() -> None:
    by_id = {goal.id: goal for goal in goals.GOALS}
    rows = [measure._row(by_id["crr/d3rlpy"], timing.Measured.ratios_of([5.0], [10.0]))]
    shares = dict(zip(parts.KINDS, (0.7, 0.1, 0.1, 0.1), strict=True))
    found = {"contest": "crr", "us": 5.0, "shares": shares, "gflop_per_second": 77.0}
    text = page._parts([found], rows, "99 GFLOP/s")
    assert "| CRR | 5 | 0.70 | 0.10 | 0.10 | 0.10 | 77 | d3rlpy 0.40 |" in text
    assert "alone ran at 99 GFLOP/s" in text


def test_the_rate_of_products_counts_their_arithmetic() -> None:
    a, b, v, bias = torch.rand(2, 3, 4), torch.rand(2, 4, 5), torch.rand(4), torch.rand(2, 1, 5)
    out = torch.empty(2, 3, 5)
    for call, flops in (
        (partial(torch.baddbmm, bias, a, b, out=out), 2 * 2 * 3 * 4 * 5),
        (partial(torch.mv, a[0], v), 2 * 3 * 4),
    ):
        clocked = parts.Clocked(call)
        clocked()
        clocked()
        assert clocked.kind == "products"
        assert clocked.flops == 2 * flops


def test_a_row_says_how_far_its_aim_is() -> None:
    by_id = {goal.id: goal for goal in goals.GOALS}
    missed = measure._row(by_id["sac/sb3"], timing.Measured.ratios_of([6.0], [10.0]))
    reached = measure._row(by_id["sac/sb3"], timing.Measured.ratios_of([5.0], [10.0]))
    share = measure._row(by_id["sac/gemm"], timing.Measured.ratios_of([7.0], [10.0]))
    assert [report.distance(row) for row in (missed, reached, share)] == [
        "0.080 away",
        "reached",
        "0.150 away",
    ]


def test_a_row_without_a_goal_is_measured_and_not_judged() -> None:
    by_id = {goal.id: goal for goal in goals.GOALS}
    read = measure._row(by_id["iql/d3rlpy"], timing.Measured.ratios_of([9.0], [10.0]))
    judged = measure._row(by_id["predict/sb3"], timing.Measured.ratios_of([0.7], [10.0]))
    assert (
        report.summary([read, judged])
        == "1 of 1 measured rows within keep, 0 within aim; 1 without a goal"
    )
    assert "no goal" in report.line(read)
    assert "keep at most 0.085  aim at most 0.06" in report.line(judged)
    table = page._rows_table([read, judged])
    assert "| IQL | d3rlpy | 9 | 10 | 0.900 | 0.900 to 0.900 | — | — | — | — |" in table
    assert "| 0.085 | 0.06 | keep | 0.010 away |" in table
    assert page._above([read]).startswith("None")
