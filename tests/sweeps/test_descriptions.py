"""Sweep files: which runs they make, and that everything wrong is said before the first one starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rl_training.config import ConfigError
from rl_training.sweeps import Sweep


def points_of(sweep: Sweep, tmp_path: Path) -> list[tuple[dict[str, Any], int]]:
    return [(dict(trial.differs), trial.config.seed) for trial in sweep.trials(tmp_path)]


def test_listed_values_are_crossed_with_each_other_and_with_seeds(tmp_path: Path) -> None:
    sweep = Sweep(
        base="td3_bc/pendulum",
        axes={"tau": [0.1, 0.2], "algo_kwargs.gamma": [0.9]},
        seeds=[4, 2],
    )
    assert points_of(sweep, tmp_path) == [
        ({"tau": tau, "algo_kwargs.gamma": 0.9}, seed) for tau in (0.1, 0.2) for seed in (4, 2)
    ]
    trial = sweep.trials(tmp_path)[3]
    assert trial.config.algo_kwargs["tau"] == 0.2
    assert trial.config.algo_kwargs["gamma"] == 0.9
    assert trial.label == "tau=0.2 algo_kwargs.gamma=0.9 seed=2"


def test_a_conditional_axis_applies_only_where_its_condition_holds(tmp_path: Path) -> None:
    sweep = Sweep(
        base=["td3_bc/pendulum", "iql/pendulum"],
        axes={
            "expectile": {"values": [0.7, 0.9], "when": {"algo": "iql"}},
            "beta": {"values": [1.0], "when": {"expectile": [0.9]}},
        },
    )
    assert [point for point, _ in points_of(sweep, tmp_path)] == [
        {"base": "td3_bc/pendulum"},
        {"base": "iql/pendulum", "expectile": 0.7},
        {"base": "iql/pendulum", "expectile": 0.9, "beta": 1.0},
    ]


def test_more_samples_leave_the_earlier_draws_as_they_are(tmp_path: Path) -> None:
    values: dict[str, Any] = {
        "base": "bc/pendulum",
        "axes": {"learning_rate": {"log_uniform": [1e-4, 1e-2]}},
    }
    few = Sweep(**values, samples=3).trials(tmp_path)
    many = Sweep(**values, samples=5).trials(tmp_path)
    assert [trial.name for trial in many[:3]] == [trial.name for trial in few]
    assert len({trial.name for trial in many}) == 5


def test_points_are_written_out_and_crossed_with_axes(tmp_path: Path) -> None:
    sweep = Sweep(
        base="bc/pendulum",
        points=[{"batch_size": 64}, {"batch_size": 128, "gamma": 0.5}][:1],
        axes={"learning_rate": [0.1, 0.2]},
    )
    assert [point for point, _ in points_of(sweep, tmp_path)] == [
        {"batch_size": 64, "learning_rate": 0.1},
        {"batch_size": 64, "learning_rate": 0.2},
    ]


def test_the_same_configuration_is_one_trial_wherever_it_comes_from(tmp_path: Path) -> None:
    twice = Sweep(base="bc/pendulum", points=[{"batch_size": 64}, {"algo_kwargs.batch_size": 64}])
    (trial,) = twice.trials(tmp_path)
    (again,) = Sweep(base="bc/pendulum", overrides={"batch_size": 64}).trials(tmp_path / "other")
    assert trial.name == again.name


def test_every_wrong_point_is_named_before_anything_starts(tmp_path: Path) -> None:
    sweep = Sweep(
        base="td3_bc/pendulum",
        axes={"tau": [0.1, 2.0, 3.0, 4.0], "batch_size": [0, 8]},
        seeds=[1, 2],
    )
    with pytest.raises(ConfigError) as error:
        sweep.trials(tmp_path)
    text = str(error.value)
    assert (
        "algo_kwargs.tau: must be <= 1 (range: > 0, <= 1), got 2.0 (at tau=2.0, batch_size=0"
        in text
    )
    assert "algo_kwargs.batch_size: must be >= 1" in text
    assert "and 2 more" in text


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"axes": {"tua": [0.1]}}, r"tua: unknown key; did you mean 'tau'\?"),
        ({"axes": {"seed": [1, 2]}}, r"axes\.seed: is set by the sweep"),
        ({"axes": {"output_dir": ["a"]}}, r"axes\.output_dir: is set by the sweep"),
        ({"seeds": 3}, r"seeds: write \[3\] for one seed, or \[0, 1, 2\] for several"),
        ({"seeds": [1, 1]}, "seeds: must be distinct"),
        ({"axis": {}}, r"axis: unknown key; did you mean 'axes'\?"),
        ({"base": []}, "base: must be at least one configuration"),
        ({"base": "td3_bc/pendulm"}, r"did you mean 'td3_bc/pendulum'\?"),
        ({"axes": {"total_timesteps": list(range(1, 10_002))}}, "more than 10,000 runs"),
        (
            {"axes": {"tau": [0.1]}, "overrides": {"tau": 0.2}},
            r"overrides\.tau: is the same in every run",
        ),
        ({"points": [{"tau": 0.1}], "overrides": {"tau": 0.2}}, r"overrides\.tau: is the same"),
    ],
)
def test_a_wrong_description_says_what_to_write(
    values: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        Sweep(**{"base": "td3_bc/pendulum", **values}).trials(tmp_path)


def test_the_configuration_of_one_run_is_no_sweep_file(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("algo: bc\nenv_id: Pendulum-v1\n")
    with pytest.raises(ConfigError, match="a sweep file names it: `base: "):
        Sweep.from_file(path)


def test_a_sweep_file_without_a_base_says_so(tmp_path: Path) -> None:
    path = tmp_path / "space.yaml"
    path.write_text("axes: {tau: [0.1]}\n")
    with pytest.raises(ConfigError, match=r"space\.yaml\.base: is required"):
        Sweep.from_file(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"points": [{"seed": 1}, {"seed": 2}]}, "points.seed: is set by the sweep"),
        ({"overrides": {"output_dir": "x"}}, "overrides.output_dir: is set by the sweep"),
        ({"overrides": {"seed": 1}, "seeds": [2]}, "overrides.seed: is set by the sweep"),
        ({"axes": {"base": ["bc/pendulum"]}}, "axes.base: several base configurations are a list"),
        ({"axes": {"tau": [0.1]}, "points": [{"tau": 0.2}]}, "axes.tau: is also set by `points`"),
        ({"axes": {"tau": [0.1]}, "samples": 3}, "samples: has no effect"),
        ({"seeds": [1, 1.0]}, "seeds: must be distinct"),
        ({"seeds": -3}, r"write \[-3\] for one seed, or \[0, 1\] for several"),
    ],
)
def test_keys_that_would_be_lost_without_a_word_are_refused(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Sweep(base="td3_bc/pendulum", **changes)


def test_a_condition_that_never_holds_is_a_mistake(tmp_path: Path) -> None:
    sweep = Sweep("td3_bc/pendulum", axes={"tau": {"values": [0.1], "when": {"algoo": "td3_bc"}}})
    with pytest.raises(ConfigError, match=r"axes\.tau\.when: holds in no run: .* must set algoo"):
        sweep.trials(tmp_path)


def test_bases_of_the_same_algorithm_are_points_of_their_own(tmp_path: Path) -> None:
    base = {"algo": "sac", "env_id": "Pendulum-v1"}
    sweep = Sweep([base, {**base, "total_timesteps": 500}, "td3/pendulum"])
    assert [trial.differs["base"] for trial in sweep.trials(tmp_path)] == [
        "sac (1)", "sac (2)", "td3/pendulum",
    ]  # fmt: skip


def test_a_sweep_file_may_hold_any_wrong_key() -> None:
    with pytest.raises(ConfigError, match=r"space\.yaml\.self: unknown key"):
        Sweep.from_text("base: td3_bc/pendulum\nself: 1", "space.yaml")
