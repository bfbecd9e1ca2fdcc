"""Importance weighting: right values, honest intervals, no number where a method does not apply."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.support.tabular import Tabular

from rl_training.ope.importance import ESTIMATORS, WeightedLog, importance_estimates
from rl_training.ope.intervals import bootstrap_interval

RECORDED = json.loads(
    (Path(__file__).parent.parent / "fixtures" / "ope_estimates.json").read_text()
)


def _log(lengths: list[int], log_ratios: object = None, **changes: object) -> WeightedLog:
    rng = np.random.default_rng(0)
    ends = np.cumsum(lengths)
    terminated = np.zeros(ends[-1], bool)
    terminated[ends - 1] = True
    log = WeightedLog(
        starts=ends - lengths,
        lengths=np.array(lengths),
        rewards=rng.normal(size=ends[-1]),
        terminated=terminated,
        log_ratios=0.3 * rng.normal(size=ends[-1])
        if log_ratios is None
        else np.asarray(log_ratios),
        gamma=0.9,
        q_logged=rng.normal(size=ends[-1]),
        v_obs=rng.normal(size=ends[-1]),
        v_next=rng.normal(size=ends[-1]),
    )
    return replace(log, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("recorded", RECORDED, ids=["different lengths", "equal lengths"])
def test_values_are_those_of_offline_rl_ope(recorded: dict) -> None:
    lengths = recorded["lengths"]
    columns = {
        name: np.array(recorded[name]) for name in ("rewards", "log_ratios", "q_logged", "v_obs")
    }
    log = _log(lengths, gamma=recorded["gamma"], **columns)
    estimates = {estimate.name: estimate.value for estimate in importance_estimates(log)}
    assert {name: estimates[name] for name in recorded["estimates"]} == pytest.approx(
        recorded["estimates"], abs=1e-5
    )


def test_self_normalised_values_are_those_of_a_loop_over_steps_with_ended_episodes_in_the_mean() -> (
    None
):
    lengths = [3, 1, 6, 4]
    log = _log(lengths)
    terminated = log.terminated.copy()
    terminated[log.last[2]] = False  # the longest is cut
    log = replace(log, terminated=terminated)
    assert log.v_obs is not None
    assert log.v_next is not None
    assert log.q_logged is not None
    pdwis = wdr = 0.0
    before = np.full(4, 1 / 4)
    for t in range(6):
        weights = np.exp(
            [
                log.log_ratios[s : s + min(t + 1, n)].sum()
                for s, n in zip(log.starts, lengths, strict=True)
            ]
        )
        share = weights / weights.sum()
        for i, (s, n) in enumerate(zip(log.starts, lengths, strict=True)):
            if t < n:
                row, rest = s + t, 0.9 * log.v_next[s + t] if i == 2 and t == n - 1 else 0.0
                pdwis += 0.9**t * share[i] * (log.rewards[row] + rest)
                wdr += 0.9**t * (
                    share[i] * (log.rewards[row] + rest - log.q_logged[row])
                    + before[i] * log.v_obs[row]
                )
        before = share
    values = {estimate.name: estimate.value for estimate in importance_estimates(log)}
    assert (values["pdwis"], values["wdr"]) == pytest.approx((pdwis, wdr))


def test_contributions_of_self_normalised_estimators_are_their_influence() -> None:
    """Derivative of the value in the weight of an episode, taken numerically by a changed first log-ratio."""
    log = _log([3, 1, 6, 4, 2])
    for estimate in importance_estimates(log, ("wis", "pdwis")):
        assert estimate.contributions.mean() == pytest.approx(estimate.value)
        for i, start in enumerate(log.starts):
            values = []
            for step in (-1e-5, 1e-5):
                ratios = log.log_ratios.copy()
                ratios[start] += step
                (changed,) = importance_estimates(
                    replace(log, log_ratios=ratios), (estimate.name,), replicates=2
                )
                values.append(changed.value)
            influence = 5 * (values[1] - values[0]) / 2e-5
            assert estimate.contributions[i] - estimate.value == pytest.approx(influence, abs=1e-6)


def test_on_policy_every_estimator_without_a_model_is_the_mean_return() -> None:
    log = _log([4, 2, 5], np.zeros(11))
    returns = [
        (0.9 ** np.arange(n) * log.rewards[s : s + n]).sum()
        for s, n in zip(log.starts, [4, 2, 5], strict=True)
    ]
    for estimate in importance_estimates(log, ("is", "pdis", "wis", "pdwis")):
        assert estimate.value == pytest.approx(np.mean(returns))
        assert estimate.contributions == pytest.approx(np.array(returns))
        assert estimate.effective_sample_size == pytest.approx(3)


def test_cut_episode_goes_on_with_the_value_of_its_next_observation() -> None:
    ended = _log([4, 2, 5])
    cut = replace(ended, terminated=np.zeros(11, bool))
    assert cut.v_next is not None
    weights = np.exp(
        [cut.log_ratios[s : s + n].sum() for s, n in zip(cut.starts, [4, 2, 5], strict=True)]
    )
    rest = 0.9 ** np.array([4, 2, 5]) * weights * cut.v_next[cut.last]
    for name in ("is", "pdis", "dr"):
        (a,), (b,) = importance_estimates(ended, (name,)), importance_estimates(cut, (name,))
        assert b.contributions - a.contributions == pytest.approx(rest), name
    with pytest.raises(ValueError, match="3 of 3 episodes are cut, not terminated"):
        replace(cut, v_next=None)


@pytest.mark.parametrize("shift", [5.0, -5.0])
def test_long_episodes_neither_overflow_nor_give_nan(shift: float) -> None:
    """Weights from e^-5000 to e^5000."""
    rng = np.random.default_rng(0)
    log = _log([1000, 700, 1000, 900], shift + rng.normal(size=3600))
    with np.errstate(all="raise", under="ignore"):
        estimates = {estimate.name: estimate for estimate in importance_estimates(log)}
    for name, estimate in estimates.items():
        assert 0 < estimate.effective_sample_size <= 4
        assert np.isfinite(estimate.mean_weight)
        if estimate.applies:
            assert np.isfinite([estimate.value, estimate.low, estimate.high]).all(), name
            assert np.isfinite(estimate.contributions).all(), name
        else:
            assert estimate.reason
    if shift > 0:
        assert "the largest importance weight is e^49" in estimates["is"].reason


def test_policy_that_never_agrees_gets_no_number_and_a_reason() -> None:
    ratios = np.zeros(11)
    ratios[[3, 5, 7]] = -np.inf  # one row of each episode
    for estimate in importance_estimates(_log([4, 2, 5], ratios)):
        assert not estimate.applies
        assert "every trajectory weight is 0" in estimate.reason
        assert estimate.effective_sample_size == 0
        assert np.isnan([estimate.value, estimate.low, estimate.high]).all()


def test_self_normalised_estimator_does_not_apply_to_one_weighted_episode() -> None:
    ratios = np.zeros(11)
    ratios[[3, 5]] = -np.inf
    estimates = {
        estimate.name: estimate for estimate in importance_estimates(_log([4, 2, 5], ratios))
    }
    assert estimates["wis"].reason == "all weight is on one episode"
    assert estimates["wis"].effective_sample_size == 1
    assert estimates["pdis"].applies


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"log_ratios": np.array([0, 0, np.nan, 0])},
            "log_ratios is nan in row 2: the behaviour must give",
        ),
        ({"log_ratios": np.array([0, np.inf, 0, 0])}, "log_ratios is inf in row 1"),
        ({"rewards": np.array([0, 0, 0, np.nan])}, "rewards is not finite in row 3"),
        ({"rewards": np.zeros(3)}, r"rewards has shape \(3,\), but terminated has \(4,\)"),
        (
            {"terminated": np.array([True, True, False, True])},
            "Row 0 is terminated, but its episode goes on",
        ),
        ({"starts": np.array([1, 0])}, "Episodes must follow each other"),
        ({"gamma": 1.5}, "gamma is 1.5"),
    ],
)
def test_broken_logs_are_refused_by_row(changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _log([2, 2], **changes)


def test_doubly_robust_estimators_ask_for_values() -> None:
    with pytest.raises(ValueError, match="need v_obs and q_logged"):
        importance_estimates(_log([2, 2], q_logged=None), ("dr",))


def test_right_values_leave_only_the_noise_of_rewards() -> None:
    """With the true q the TD errors are noise, so that the doubly robust interval is much narrower."""
    log = _log(
        [1] * 50, np.zeros(50), rewards=np.ones(50), q_logged=np.ones(50), v_obs=np.full(50, 3.0)
    )
    (estimate,) = importance_estimates(log, ("dr",))
    assert (estimate.low, estimate.value, estimate.high) == (3.0, 3.0, 3.0)


def test_intervals_cover_the_known_value() -> None:
    """90 % intervals in 200 logs of 100 episodes."""
    problem = Tabular.random()
    policy = problem.policy(0.2)
    truth = problem.values(policy)[0].mean()
    rng = np.random.default_rng(0)
    covered = dict.fromkeys(ESTIMATORS, 0)
    for _ in range(200):
        for estimate in importance_estimates(
            problem.log(policy, rng), confidence=0.9, replicates=500
        ):
            covered[estimate.name] += estimate.low <= truth <= estimate.high
    assert min(covered.values()) >= 174, covered


def test_intervals_are_seeded_and_grow_with_confidence() -> None:
    log = Tabular.random().log(Tabular.random().policy(0.3), np.random.default_rng(0))
    narrow, again, wide = (
        importance_estimates(log, ("wdr",), confidence=confidence)[0]
        for confidence in (0.5, 0.5, 0.99)
    )
    assert (narrow.low, narrow.high) == (again.low, again.high)
    assert wide.low < narrow.low < narrow.value < narrow.high < wide.high


def test_few_or_lumpy_episodes_give_intervals_that_are_neither_empty_nor_absurd() -> None:
    low, high = bootstrap_interval(np.array([1.0, 3.0]), 0.9)
    assert high - low >= 2 * 6.3  # Student's t with one degree of freedom
    one_of_many = np.zeros(60)
    one_of_many[7] = 6.0  # standard error 0.1
    low, high = bootstrap_interval(one_of_many, 0.9)
    assert low < 0 < 0.1 < high
    assert high - low < 1.5
