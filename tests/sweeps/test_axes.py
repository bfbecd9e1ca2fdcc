"""Axes: what a file may say about the values of a key, and draws that depend on nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from rl_training.config import ConfigError
from rl_training.sweeps.axes import parse_axes, parse_axis


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (3, "expected a list of values or a range"),
        ([], r"values: must be a list with at least one value"),
        ([1, 2, 1], "values: lists 1 twice"),
        ({"log_unifrom": [1, 2]}, "log_unifrom: unknown key; did you mean 'log_uniform'"),
        ({"when": {"algo": "iql"}}, "needs one of values, choice, uniform"),
        ({"uniform": [0, 1], "choice": [1]}, "needs one of .* it has 2"),
        ({"uniform": [1, 0]}, r"uniform: low must be below high, got \[1, 0\]"),
        ({"uniform": [0, 1, 2]}, r"uniform: must be \[low, high\]"),
        ({"uniform": [0, float("nan")]}, r"uniform: must be \[low, high\]"),
        ({"uniform": [0, True]}, r"uniform: must be \[low, high\]"),
        ({"log_uniform": [0, 1]}, "log_uniform: needs numbers above 0"),
        ({"integer": [0.5, 2]}, "integer: needs whole numbers"),
        ({"values": [1], "when": []}, "when: must be a mapping"),
    ],
)
def test_a_wrong_axis_is_refused_in_words_that_name_the_part(value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=rf"axes\.tau.*{message}"):
        parse_axes({"tau": value})


def test_a_condition_on_a_later_axis_is_refused() -> None:
    axes = {"beta": {"values": [1], "when": {"expectile": 0.7}}, "expectile": [0.7, 0.9]}
    with pytest.raises(ConfigError, match=r"beta\.when: expectile must come before beta"):
        parse_axes(axes)


def test_draws_depend_on_seed_number_and_key_only() -> None:
    first = parse_axes({"tau": {"uniform": [0, 1]}, "gamma": {"uniform": [0, 1]}})
    alone = parse_axes({"gamma": {"uniform": [0, 1]}})
    assert first[1].draw(0, 3) == alone[0].draw(0, 3)
    assert first[0].draw(0, 3) != first[1].draw(0, 3)
    assert alone[0].draw(0, 3) != alone[0].draw(1, 3)


@pytest.mark.parametrize("kind", ["integer", "log_integer"])
def test_whole_numbers_reach_both_ends_and_never_leave_them(kind: str) -> None:
    axis = parse_axis("n", {kind: [1, 4]})
    drawn = [axis.draw(0, number) for number in range(400)]
    assert set(drawn) == {1, 2, 3, 4}
    assert all(type(value) is int for value in drawn)


def test_log_uniform_spreads_over_the_orders_of_magnitude() -> None:
    axis = parse_axis("lr", {"log_uniform": [1e-5, 1e-1]})
    drawn = [axis.draw(0, number) for number in range(1_000)]
    assert all(1e-5 <= value <= 1e-1 for value in drawn)
    below = sum(value < 1e-3 for value in drawn)
    assert 430 < below < 570
