"""Early stopping: patience, direction, targets, and what a missing metric means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_training.config import ConfigError, RunError
from rl_training.runtime import (
    EarlyStoppingCallback,
    EarlyStoppingConfig,
    TrainConfig,
    TrainerState,
    resume,
    train,
)
from rl_training.runtime.evaluation.evaluator import Evaluation, Evaluator


def evaluations_until_stop(values: list[float], **options: Any) -> int | None:
    callback = EarlyStoppingCallback(EarlyStoppingConfig(**options))
    state = TrainerState(algorithm=None)
    callback.on_train_start(state)
    for number, value in enumerate(values, 1):
        state.global_step = 100 * number
        callback.on_eval_end(state, {"eval/return_mean": value})
        if state.should_stop:
            return number
    return None


@pytest.mark.parametrize(
    ("values", "options", "stopped"),
    [
        ([1, 2, 3, 4], {"patience": 1}, None),
        ([1, 0, 0], {"patience": 2}, 3),
        ([1, 0, 2, 1, 1], {"patience": 2}, 5),
        ([1, 1.05, 1.1], {"patience": 2, "min_delta": 0.2}, 3),
        ([3, 2, 1], {"patience": 1, "mode": "min"}, None),
        ([1, 2], {"patience": 1, "mode": "min"}, 2),
        ([0, 0, 0, 0], {"patience": 1, "min_steps": 400}, 4),
        ([1, 5, 9], {"patience": 9, "target_value": 5}, 2),
        ([9, 5, 1], {"patience": 9, "target_value": 5, "mode": "min"}, 2),
        ([9, 9], {"patience": 9, "target_value": 5, "min_steps": 200}, 2),
        ([1, float("nan"), float("nan")], {"patience": 2}, 3),
        ([0, 1], {"patience": 1, "metric": "eval_return_mean"}, None),
    ],
)
def test_stops_after_so_many_evaluations(
    values: list[float], options: dict[str, Any], stopped: int | None
) -> None:
    assert evaluations_until_stop(values, **options) == stopped


def test_missing_metric_is_an_error_that_names_what_there_is() -> None:
    callback = EarlyStoppingCallback(EarlyStoppingConfig(metric="eval/success_rate"))
    with pytest.raises(RunError, match=r"eval/success_rate.*eval/return_mean"):
        callback.on_eval_end(TrainerState(algorithm=None), {"eval/return_mean": 1.0})


def test_bad_options_are_refused() -> None:
    with pytest.raises(ConfigError, match="patience: must be >= 1"):
        EarlyStoppingConfig(patience=0)


def test_memory_survives_a_save() -> None:
    config = EarlyStoppingConfig(patience=3)
    first, state = EarlyStoppingCallback(config), TrainerState(algorithm=None)
    for value in (5.0, 4.0, 3.0):
        first.on_eval_end(state, {"eval/return_mean": value})
    second = EarlyStoppingCallback(config)
    second.load_state_dict(first.state_dict())
    second.on_eval_end(state, {"eval/return_mean": 2.0})
    assert state.should_stop


def test_first_reason_to_stop_is_kept() -> None:
    state = TrainerState(algorithm=None)
    state.request_stop("one")
    state.request_stop("two")
    assert state.stop_reason == "one"


def test_a_run_stops_at_once_and_says_why(pendulum_config: Any) -> None:
    options = {"eval_interval": 5, "early_stopping": {"patience": 2, "min_delta": 1e9}}
    result = train(pendulum_config(algo_kwargs=options))
    assert result.stop_reason is not None
    assert "has not improved for 2 evaluations" in result.stop_reason
    assert result.checkpoint_path.name == "step_15"


@pytest.mark.parametrize("algo", ["sac", "rlpd"])
def test_an_online_run_stops_between_two_environment_steps(
    algo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scores 1, 5, 4, 5: the second and third after the best end the run, at the fourth score."""
    scores = iter([1.0, 5.0, 4.0, 5.0])

    def scripted(self: Evaluator, seeds: Any, **_: Any) -> Evaluation:
        return Evaluation(np.array([next(scores)]), np.array([1]))

    monkeypatch.setattr(Evaluator, "run", scripted)
    options: dict[str, Any] = {
        "hidden_sizes": [8, 8],
        "batch_size": 8,
        "learning_starts": 10,
        "eval_interval": 15,
        "early_stopping": {"patience": 2},
    }
    if algo == "rlpd":
        options |= {"dataset_kind": "random", "dataset_size": 100}
        options |= {"num_critics": 2, "gradient_updates_per_step": 2}
    config = TrainConfig(
        algo=algo,
        env_id="Pendulum-v1",
        total_timesteps=1_000,
        eval_episodes=1,
        checkpoint_interval=1_000,
        output_dir=str(tmp_path),
        algo_kwargs=options,
    )
    result = train(config)
    assert result.stop_reason is not None
    assert "has not improved for 2 evaluations" in result.stop_reason
    assert result.metrics["rollout/buffer_size"] == 60
    assert result.metrics["eval/return_mean"] == 5.0
    assert result.checkpoint_path.name == "step_60"
    assert (result.run_dir / "checkpoints" / "best").resolve().name == "step_30"
    with pytest.raises(ConfigError, match=r"stopped at step 60 .*early stopping"):
        resume(result.run_dir)


def test_losses_are_watched_once_they_are_logged(pendulum_config: Any) -> None:
    options = {"eval_interval": 5, "early_stopping": {"metric": "train/actor_loss", "patience": 9}}
    assert (
        train(pendulum_config(log_interval=12, algo_kwargs=options)).stop_reason
        == "total_timesteps"
    )
    options["early_stopping"] = {"metric": "train/no_such_loss"}
    with pytest.raises(RunError, match="train/no_such_loss"):
        train(pendulum_config(algo_kwargs=options))
