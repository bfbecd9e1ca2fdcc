"""Budgets, schedules, callbacks, best and kept checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_training.config import ConfigError, RunError
from rl_training.runtime import (
    Callback,
    ControlsConfig,
    TrainerState,
    build_control_callbacks,
    train,
)
from rl_training.runtime.callbacks import EarlyStoppingCallback, Interval
from rl_training.runtime.checkpoints.format import Contents
from rl_training.runtime.checkpoints.store import Checkpoints
from rl_training.runtime.config.schedules import ScheduleConfig, factor


@pytest.mark.parametrize(
    ("step", "rate"),
    [
        (0, 3e-4),
        (250_000, 2.560660e-4),
        (500_000, 1.5e-4),
        (750_000, 4.393398e-5),
        (1_000_000, 0.0),
    ],
)
def test_cosine_schedule_has_the_reference_values(step: int, rate: float) -> None:
    schedule = ScheduleConfig(kind="cosine")
    found = 3e-4 * factor(schedule, step, total=1_000_000, warmup_steps=0)
    assert found == pytest.approx(rate, abs=1e-10)


def test_schedules_warm_up_decay_and_stay() -> None:
    linear = ScheduleConfig(kind="linear", final=0.2)
    shares = [factor(linear, step, total=14, warmup_steps=4) for step in (0, 1, 3, 4, 9, 14, 99)]
    assert shares == pytest.approx([0.25, 0.5, 1.0, 1.0, 0.6, 0.2, 0.2])
    shorter = ScheduleConfig(kind="linear", horizon=10)
    assert factor(shorter, 5, total=1000, warmup_steps=0) == pytest.approx(0.5)
    assert factor(ScheduleConfig(), 77, total=10, warmup_steps=0) == 1.0


class Rates(Callback):
    """Learning rates after each update: those of the next one."""

    def __init__(self) -> None:
        self.rates: list[tuple[float, float]] = []

    def on_update_end(self, state: TrainerState, terms: Any) -> None:
        optimizers = state.algorithm.optimizers
        self.rates.append(
            (optimizers["actor"].param_groups[0]["lr"], optimizers["critic"].param_groups[0]["lr"])
        )


def test_schedules_reach_the_optimizers_by_network(small_config: Any) -> None:
    rates = Rates()
    options = {"learning_rate_schedule": {"actor": "linear"}, "warmup_steps": 0,
               "learning_rate": 1e-2, "critic_learning_rate": 1e-3}  # fmt: skip
    train(small_config(total_timesteps=10, algo_kwargs=options), callbacks=[rates])
    actor, critic = zip(*rates.rates, strict=True)
    assert actor == pytest.approx([1e-2 * (1 - step / 10) for step in range(1, 11)])
    assert critic == pytest.approx([1e-3] * 10)


@pytest.mark.parametrize(
    ("options", "updates", "reason"),
    [
        ({}, 40, "total_timesteps"),
        ({"max_updates": 13}, 13, "max_updates"),
        ({"max_epochs": 1}, 25, "max_epochs"),  # 25 batches of 16 are 400 transitions
        ({"max_epochs": 1, "max_updates": 30}, 25, "max_epochs"),
        ({"max_updates": 99}, 40, "total_timesteps"),
    ],
)
def test_first_budget_reached_stops(
    options: dict[str, int], updates: int, reason: str, small_config: Any
) -> None:
    result = train(small_config(algo_kwargs=options))
    assert result.stop_reason == reason
    assert result.checkpoint_path.name == f"step_{updates}"


def test_control_callbacks_are_those_asked_for() -> None:
    def names(**options: Any) -> list[str]:
        controls = ControlsConfig(**options)
        return [type(c).__name__ for c in build_control_callbacks(controls, total_timesteps=10)]

    assert names() == ["BudgetCallback"]
    assert names(warmup_steps=3) == ["ScheduleCallback", "BudgetCallback"]
    assert names(early_stopping={}) == ["EarlyStoppingCallback", "BudgetCallback"]


def test_controls_may_be_a_plain_mapping() -> None:
    options = {"max_updates": 3, "early_stopping": {"patience": 2}}
    stopping, budget = build_control_callbacks(options, total_timesteps=10)
    assert isinstance(stopping, EarlyStoppingCallback)
    assert stopping.config.patience == 2
    state = TrainerState(None, update_count=3)
    budget.on_train_start(state)
    assert state.stop_reason == "max_updates"
    with pytest.raises(ConfigError, match="max_updates"):
        build_control_callbacks({"max_update": 3}, total_timesteps=10)


def test_a_budget_waits_for_the_updates_of_the_last_environment_step() -> None:
    (budget,) = build_control_callbacks({}, total_timesteps=10)
    state = TrainerState(None, global_step=12, mid_step=True)  # several environments overshoot
    budget.on_collect_end(state, 4)
    assert not state.should_stop
    state.mid_step = False
    budget.on_collect_end(state, 4)
    assert state.stop_reason == "total_timesteps"


def test_interval_fires_on_crossing_not_on_equality() -> None:
    interval = Interval(10)
    assert [interval.crossed(TrainerState(None, global_step=clock)) for clock in (3, 9, 11, 12, 19, 35, 40)] == [
        False, False, True, False, False, True, True,
    ]  # fmt: skip


class Recorder(Callback):
    def __init__(self) -> None:
        self.events: list[str] = []

    def on_train_start(self, state: TrainerState) -> None:
        self.events.append("start")

    def on_update_end(self, state: TrainerState, terms: Any) -> None:
        self.events.append(f"update {state.update_count}")
        if state.update_count == 3:
            state.request_stop("enough")

    def on_eval_end(self, state: TrainerState, metrics: Any) -> None:
        self.events.append(f"eval {state.global_step}")

    def on_train_end(self, state: TrainerState) -> None:
        self.events.append("end")


def test_callbacks_see_everything_and_can_stop_the_run(pendulum_config: Any) -> None:
    recorder = Recorder()
    config = pendulum_config(algo_kwargs={"eval_interval": 2})
    result = train(config, callbacks=[recorder])
    assert recorder.events == [
        "start", "update 1", "eval 2", "update 2", "update 3", "eval 3", "end",
    ]  # fmt: skip
    assert result.stop_reason == "enough"


def test_best_points_to_the_best_evaluation(pendulum_config: Any) -> None:
    result = train(pendulum_config(total_timesteps=60, algo_kwargs={"eval_interval": 5}))
    with np.load(result.run_dir / "evaluations.npz") as saved:
        best = saved["steps"][saved["returns"].mean(1).argmax()]
    assert (result.run_dir / "checkpoints" / "best").resolve().name == f"step_{best}"
    assert (result.run_dir / "checkpoints" / "last").resolve().name == "step_60"


def test_only_so_many_checkpoints_are_kept(pendulum_config: Any) -> None:
    options = {"keep_checkpoints": 2, "eval_interval": 15}
    result = train(pendulum_config(total_timesteps=60, algo_kwargs=options))
    checkpoints = result.run_dir / "checkpoints"
    kept = {path.name for path in checkpoints.glob("step_*")}
    assert kept == {"step_50", "step_60", (checkpoints / "best").resolve().name}


def test_epoch_counts_passes_over_the_data(small_config: Any) -> None:
    result = train(small_config(total_timesteps=60))
    rows = [
        json.loads(line) for line in (result.run_dir / "metrics.jsonl").read_text().splitlines()
    ]
    assert [(row["step"], row["epoch"]) for row in rows] == [
        (10, 0), (20, 0), (30, 1), (40, 1), (50, 2), (60, 2),
    ]  # fmt: skip


def test_logged_losses_are_means_over_the_interval(small_config: Any) -> None:
    class Losses(Callback):
        def __init__(self) -> None:
            self.values: list[float] = []

        def on_update_end(self, state: TrainerState, terms: Any) -> None:
            self.values.append(terms["critic_loss"].item())

    losses = Losses()
    result = train(small_config(total_timesteps=300, log_interval=150), callbacks=[losses])
    rows = [
        json.loads(line) for line in (result.run_dir / "metrics.jsonl").read_text().splitlines()
    ]
    means = [np.mean(losses.values[:150]), np.mean(losses.values[150:])]
    assert [row["train/critic_loss"] for row in rows] == pytest.approx(means, rel=1e-6)


def test_divergence_is_an_error_and_is_not_saved(small_config: Any) -> None:
    options = {"reward_scale": 1e30, "learning_rate": 10.0}
    config = small_config(total_timesteps=500, checkpoint_interval=7, algo_kwargs=options)
    with pytest.raises(RunError, match="training diverged"):
        train(config)
    for path in Path(config.output_dir).rglob("manifest.json"):
        assert "NaN" not in path.read_text()


class Crash(Callback):
    """Fails in one of its hooks."""

    def __init__(self, hook: str) -> None:
        self.hook = hook

    def on_train_start(self, state: TrainerState) -> None:
        self._crash_in("on_train_start")

    def on_update_end(self, state: TrainerState, terms: Any) -> None:
        self._crash_in("on_update_end")

    def _crash_in(self, hook: str) -> None:
        if hook == self.hook:
            raise ValueError("boom")


@pytest.mark.parametrize(("hook", "directories"), [("on_train_start", 0), ("on_update_end", 1)])
def test_a_run_directory_is_deleted_only_if_nothing_was_learned(
    hook: str, directories: int, small_config: Any
) -> None:
    config = small_config()
    with pytest.raises(ValueError, match="boom"):
        train(config, callbacks=[Crash(hook)])
    assert len(list(Path(config.output_dir).glob("*"))) == directories


def test_stopping_before_the_first_update_still_leaves_a_checkpoint(small_config: Any) -> None:
    class StopAtOnce(Callback):
        def on_train_start(self, state: TrainerState) -> None:
            state.request_stop("not today")

    result = train(small_config(), callbacks=[StopAtOnce()])
    assert result.stop_reason == "not today"
    assert result.checkpoint_path.name == "step_0"


def test_a_pinned_step_survives_pruning_until_another_is_pinned(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, lambda: Contents({}, {}), keep=2)
    checkpoints.save(1)
    checkpoints.pinned["good"] = 1
    for step in (2, 3, 4):
        checkpoints.save(step)
    checkpoints.prune()
    assert [step for step in range(1, 5) if checkpoints.has(step)] == [1, 3, 4]
    checkpoints.pinned["good"] = 5
    assert checkpoints.lacks_pinned()
    checkpoints.save(5)
    checkpoints.prune()
    assert [step for step in range(1, 6) if checkpoints.has(step)] == [4, 5]
    assert not checkpoints.lacks_pinned()
