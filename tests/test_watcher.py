"""A run that learns the wrong thing says so itself, and a run that does well says nothing."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_training.cli.main import main
from rl_training.data import TransitionDataset
from rl_training.data.data_facts import Behaviour, DataFacts
from rl_training.runtime import TrainConfig, resume, train
from rl_training.runtime.loop.state import TrainerState
from rl_training.runtime.loop.watcher import Watcher
from tests.support.data import make_fields
from tests.support.runs import killed_run

CONTINUOUS = DataFacts(2.0, 0.1, 2, Behaviour(-36.0, 0.5, 200))
DISCRETE = DataFacts(1.0, None, 4)


def watched(facts: DataFacts, *rows: dict[str, float], **options: Any) -> list[str]:
    """Warnings after these rows of metrics."""
    watcher = Watcher(facts, **{"gamma": 0.99, **options})
    for row in rows:
        watcher.on_log(TrainerState(None), {f"train/{name}": v for name, v in row.items()})
    return list(watcher.warnings.values())


@pytest.mark.parametrize(
    ("facts", "rows", "said"),
    [
        (DISCRETE, [{"advantage_weight_capped": 0.9}], "90% of the advantage weights"),
        (DISCRETE, [{"advantage_weight_capped": 0.3}], None),
        (CONTINUOUS, [{"q_mean": 5_000.0}], "values have reached 5000"),
        (CONTINUOUS, [{"target_q_mean": -5_000.0}], "values have reached -5000"),
        (CONTINUOUS, [{"policy_q_mean": 5_000.0}], "allow 200 at most"),
        (CONTINUOUS, [{"q_mean": 400.0}], None),
        (CONTINUOUS, [{"action_distance": 1.2}], "has left the data"),
        (CONTINUOUS, [{"action_distance": 0.4}], None),
        (CONTINUOUS, [{"log_prob_mean": -40.0}, {"log_prob_mean": -8.0}], None),
        (CONTINUOUS, [{"log_prob_mean": -8.0}, {"log_prob_mean": -40.0}], "fell from -8 to -40"),
        (DISCRETE, [{"log_prob_mean": -1.0}, {"log_prob_mean": -6.0}], None),
        (DISCRETE, [{"log_prob_mean": -1.0}, {"log_prob_mean": -13.0}], "has left the data"),
        (DISCRETE, [{"conservative_gap": 1.0}, {"conservative_gap": 20.0}], "has left the data"),
        (DataFacts(0.0, None, 2), [{"q_mean": 5.0}], None),
    ],
)
def test_metrics_beyond_what_the_data_allows_are_reported(
    facts: DataFacts, rows: list[dict[str, float]], said: str | None
) -> None:
    warnings = watched(facts, *rows)
    assert len(warnings) == (said is not None)
    assert said is None or said in warnings[0]


def test_each_warning_comes_once_with_the_option_to_change() -> None:
    row = {"advantage_weight_capped": 0.9}
    warnings = watched(DISCRETE, row, row, remedies={"weights": "lower beta"})
    assert len(warnings) == 1
    assert "lower beta" in warnings[0]


def test_values_are_unbounded_without_discounting() -> None:
    assert not watched(CONTINUOUS, {"q_mean": 1e9}, gamma=1.0)
    assert not watched(CONTINUOUS, {"q_mean": 1e9}, gamma=None)


@pytest.mark.parametrize(("score", "warns"), [(-40.0, True), (-36.5, False), (-30.0, False)])
def test_final_score_below_the_log_is_reported(score: float, warns: bool) -> None:
    watcher = Watcher(CONTINUOUS, gamma=0.99, eval_episodes=25)
    state = TrainerState(None)
    watcher.on_eval_end(state, {"eval/return_mean": score, "eval/return_std": 2.0})
    watcher.on_train_end(state)
    assert bool(watcher.warnings) == warns


def uneven_fields() -> dict[str, Any]:
    """The small log, with a column of pressures beside one of prices."""
    fields = make_fields()
    for name in ("obs", "next_obs"):
        fields[name] = fields[name].copy()
        fields[name][:, 0] = 101_325 + 100 * fields[name][:, 0]
        fields[name][:, 1] *= 0.01
    return fields


def log_config(tmp_path: Path, **kwargs: Any) -> TrainConfig:
    return TrainConfig(
        algo="iql", total_timesteps=20, log_interval=10, output_dir=str(tmp_path / "runs"),
        algo_kwargs={"hidden_sizes": [8], "batch_size": 16, **kwargs},
    )  # fmt: skip


def test_columns_of_different_scale_are_warned_of_unless_normalised(tmp_path: Path) -> None:
    dataset = TransitionDataset.from_dict(uneven_fields())
    config = log_config(tmp_path, normalize_observations=False)
    result = train(config, dataset=dataset)
    assert "column 0" in result.warnings[0]
    assert "column 1" in result.warnings[0]
    assert "normalize_observations: true" in result.warnings[0]
    written = json.loads((result.run_dir / "result.json").read_text())
    assert written["warnings"] == list(result.warnings)
    assert not train(log_config(tmp_path), dataset=dataset).warnings
    even = TransitionDataset.from_dict(make_fields())
    assert not train(config, dataset=even).warnings


def test_saturated_weights_of_a_run_reach_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fields = make_fields()
    fields["rewards"] = np.full_like(fields["rewards"], 1e4)
    np.savez(tmp_path / "log.npz", **fields)
    options = [
        "total_timesteps=60", "log_interval=20", "hidden_sizes=[8]", "batch_size=16",
        "learning_rate=0.1", "max_advantage_weight=1e-6", f"output_dir={tmp_path / 'runs'}",
        f"dataset_path={tmp_path / 'log.npz'}",
    ]  # fmt: skip
    assert main(["train", "iql/own-log", "--quiet", *options]) == 0
    err = capsys.readouterr().err
    assert err.count("warning: ") == 1
    assert "of the advantage weights are at their bound" in err
    assert "lower beta" in err


def test_resumed_run_knows_what_was_said_before(tmp_path: Path) -> None:
    np.savez(tmp_path / "log.npz", **make_fields())
    config = log_config(
        tmp_path, dataset_kind="npz", dataset_path=str(tmp_path / "log.npz"),
        max_advantage_weight=1e-6,
    ).replace(checkpoint_interval=10)  # fmt: skip
    whole = train(config)
    assert whole.warnings[0].startswith("step 10: ")
    assert resume(killed_run(config, 15)).warnings == whole.warnings
    assert resume(whole.run_dir).warnings == whole.warnings  # nothing is left to do


def test_resumed_run_compares_with_rows_and_scores_before_it() -> None:
    before, after = (Watcher(CONTINUOUS, gamma=0.99, eval_episodes=25) for _ in range(2))
    state = TrainerState(None)
    before.on_log(state, {"train/log_prob_mean": -8.0})
    before.on_eval_end(state, {"eval/return_mean": -40.0, "eval/return_std": 2.0})
    after.load_state_dict(json.loads(json.dumps(before.state_dict())))
    after.on_log(state, {"train/log_prob_mean": -40.0})
    after.on_train_end(state)
    assert list(after.warnings) == ["_distant_policy", "below_behaviour"]


def test_data_check_warns_of_scales_but_finds_the_log_sound(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "log.npz", **uneven_fields())
    assert main(["data", "check", str(tmp_path / "log.npz"), "--json"]) == 0
    findings = json.loads(capsys.readouterr().out)
    scale = [finding for finding in findings if finding["name"] == "column-scale"]
    assert [finding["level"] for finding in scale] == ["warning"]
    assert "normalize_observations" in scale[0]["fix"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        f"{algo}/{task}"
        for algo in ("awac", "bc", "cql", "crr", "iql", "rebrac", "td3_bc")
        for task in ("cartpole", "mountaincar", "pendulum")
        if (algo, task) not in {("rebrac", "cartpole"), ("td3_bc", "cartpole")}
    ],
)
def test_packaged_demos_raise_no_alarm(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from rl_training.experiment import load_config

    overrides = {"output_dir": str(tmp_path), "eval_episodes": 0, "total_timesteps": 1_500}
    with caplog.at_level(logging.WARNING, "rl_training"):
        assert not train(load_config(name, overrides)).warnings
