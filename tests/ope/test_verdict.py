"""Verdicts: what they rest on, and when the numbers are not to be trusted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.support.data import make_fields

from rl_training.data.offline_dataset import TransitionDataset
from rl_training.ope.card import CardEstimate, Interval
from rl_training.ope.intervals import replicate_margin, student_quantile
from rl_training.ope.judged_log import JudgedLog
from rl_training.ope.verdict import Evidence, judge_evidence


def evidence(**changes: Any) -> Evidence:
    log = JudgedLog(TransitionDataset.from_dict(make_fields(rows=400)), 0.9)
    values: dict[str, Any] = {
        "log": log,
        "behaviour": Interval(0.0, -0.1, 0.1),
        "fitted_behaviour": Interval(0.0, -0.1, 0.1),
        "unlike_share": 0.01,
        "trace": np.full(20, 1.0),
    }
    return Evidence(**{**values, **changes})


def fqe(low: float, high: float) -> CardEstimate:
    middle = (low + high) / 2
    return CardEstimate("fqe", Interval(middle, low, high), Interval(middle, low, high))


@pytest.mark.parametrize(
    ("bounds", "verdict"),
    [
        ((0.5, 1.5), "better than the log"),
        ((-0.5, 1.5), "not distinguishable"),
        ((-1.5, -0.5), "worse"),
    ],
)
def test_the_verdict_is_where_the_interval_of_the_difference_lies(
    bounds: tuple[float, float], verdict: str
) -> None:
    assert judge_evidence([fqe(*bounds)], evidence())[0] == verdict


def test_better_needs_every_trusted_estimator() -> None:
    weighted = CardEstimate("wdr", Interval(1, 0, 2), Interval(0.5, -0.2, 1.2), 50.0)
    verdict, reasons = judge_evidence([fqe(0.5, 1.5), weighted], evidence())
    assert verdict == "not distinguishable"
    assert "-0.2 and 1.5" in reasons[0]
    ignored = CardEstimate("wdr", Interval(1, 0, 2), Interval(0.5, -0.2, 1.2), 7.0, trusted=False)
    assert judge_evidence([fqe(0.5, 1.5), ignored], evidence())[0] == "better than the log"


def test_a_difference_as_small_as_the_known_error_of_the_fit_is_none() -> None:
    """All members share an error such as that of a time limit, so that it is not in their spread."""
    missed = evidence(fitted_behaviour=Interval(0.15, 0.1, 0.2), trace=np.full(20, 0.2))
    assert judge_evidence([fqe(0.1, 0.3)], missed)[0] == "not distinguishable"
    assert judge_evidence([fqe(-0.3, -0.1)], missed)[0] == "not distinguishable"
    assert judge_evidence([fqe(0.2, 0.4)], missed)[0] == "better than the log"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"unlike_share": 0.38}, "38% of the policy's actions are unlike any logged one"),
        ({"trace": np.linspace(0, 1, 20)}, "still moves"),
        ({"fitted_behaviour": Interval(9.0, 8.9, 9.1)}, "the log's own value"),
        (
            {"log": JudgedLog(TransitionDataset.from_dict(make_fields(rows=60)), 0.9)},
            "the log has 3 episodes",
        ),
    ],
)
def test_numbers_that_cannot_be_trusted_get_no_other_verdict(
    changes: dict[str, Any], reason: str
) -> None:
    verdict, reasons = judge_evidence([fqe(0.9, 1.1)], evidence(**changes))
    assert verdict == "do not trust this"
    assert any(reason in text for text in reasons)


def test_an_interval_wider_than_the_returns_vary_is_not_trusted() -> None:
    verdict, reasons = judge_evidence([fqe(-20, -1)], evidence())
    assert verdict == "do not trust this"
    assert "off by up to 9.5" in reasons[0]


def test_values_that_no_reward_allows_are_not_trusted() -> None:
    verdict, reasons = judge_evidence([fqe(999, 1001)], evidence())
    assert verdict == "do not trust this"
    assert "the log's rewards allow" in reasons[0]


def test_estimators_that_disagree_are_not_trusted() -> None:
    other = CardEstimate("wdr", Interval(-2, -3, -1), Interval(-2, -3, -1), 60.0)
    verdict, reasons = judge_evidence([fqe(0.5, 1.5), other], evidence())
    assert verdict == "do not trust this"
    assert "estimators disagree: fitted Q evaluation 1 (0.5 to 1.5)" in reasons[0]


def test_quantiles_of_students_t_are_those_of_the_tables() -> None:
    # two-sided 90 % and 95 %, from any table of the distribution
    tabulated = {1: (6.314, 12.706), 2: (2.920, 4.303), 4: (2.132, 2.776), 9: (1.833, 2.262)}
    for freedom, (ninety, ninety_five) in tabulated.items():
        assert student_quantile(0.90, freedom) == pytest.approx(ninety, rel=0.005)
        assert student_quantile(0.95, freedom) == pytest.approx(ninety_five, rel=0.01)
    margin = replicate_margin(np.array([1.0, 2.0, 3.0]), 0.9)
    assert margin == pytest.approx(2.920 * (4 / 3) ** 0.5, rel=1e-3)  # their mean varies too
