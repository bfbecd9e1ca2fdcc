"""ExperimentManager: a run of its own for each seed, and what becomes of them if one ends badly."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rl_training.config import ConfigError, RunError
from rl_training.experiment import ExperimentManager
from rl_training.runtime import Callback, TrainConfig, TrainerState, TrainResult
from rl_training.runtime.loop.stop_reasons import INTERRUPTED
from rl_training.sweeps.seeds import SeedsFailedError


def seed_of(result: TrainResult) -> int:
    manifest = json.loads((result.checkpoint_path / "manifest.json").read_text())
    return int(manifest["config"]["seed"])


class AtFirstUpdate(Callback):
    """Does something to the run of one seed at its first update."""

    def __init__(self, action: Callable[[TrainerState], None]) -> None:
        self.action = action

    def on_update_end(self, state: TrainerState, terms: Any) -> None:
        self.action(state)


def for_seed(seed: int, action: Callable[[TrainerState], None]) -> Any:
    return lambda config: [AtFirstUpdate(action)] if config.seed == seed else []


def fail(state: TrainerState) -> None:
    raise RunError("the disk is gone")


def test_every_seed_has_a_run_of_its_own_in_the_order_asked_for(small_config: Any) -> None:
    config = small_config(total_timesteps=5)
    made: list[TrainConfig] = []
    results = ExperimentManager(config).run(
        [4, 2],
        callbacks=lambda one: made.append(one) or [],  # type: ignore[func-returns-value]
    )
    assert [seed_of(result) for result in results] == [4, 2]
    assert made == [config.replace(seed=4), config.replace(seed=2)]  # fresh callbacks for each
    runs = {result.run_dir for result in results}
    assert len(runs) == 2
    assert set(Path(config.output_dir).iterdir()) == runs
    assert results[0].metrics["train/critic_loss"] != results[1].metrics["train/critic_loss"]


def test_a_seed_that_fails_is_named_and_the_others_are_trained(small_config: Any) -> None:
    manager = ExperimentManager(small_config(total_timesteps=5))
    with pytest.raises(SeedsFailedError, match=r"^seed 2: the disk is gone$") as failure:
        manager.run([1, 2, 3], callbacks=for_seed(2, fail))
    assert [seed_of(result) for result in failure.value.results] == [1, 3]
    with pytest.raises(RunError, match=r"^the disk is gone$"):  # one seed: its own error
        manager.run([2], callbacks=for_seed(2, fail))


def test_an_interrupt_ends_all_seeds_and_keeps_what_was_trained(small_config: Any) -> None:
    manager = ExperimentManager(small_config(total_timesteps=5))
    interrupt = for_seed(2, lambda state: state.request_stop(INTERRUPTED))
    results = manager.run([1, 2, 3], callbacks=interrupt)
    assert [seed_of(result) for result in results] == [1, 2]
    assert [result.stop_reason for result in results] == ["total_timesteps", INTERRUPTED]
    # auto_resume: the first is complete, the second goes on, the third begins
    resumed = manager.run([1, 2, 3], auto_resume=True)
    assert [result.run_dir for result in resumed[:2]] == [result.run_dir for result in results]
    assert [result.stop_reason for result in resumed] == ["total_timesteps"] * 3


@pytest.mark.parametrize(
    ("seeds", "options", "message"),
    [
        ([], {}, "distinct and at least one"),
        ([1, 1], {}, r"distinct and at least one, got \[1, 1\]"),
        ([1, 2], {"jobs": 0}, "jobs must be at least 1, got 0"),
        ([1, 2], {"jobs": 2, "callbacks": lambda _: []}, "train with jobs=1"),
        ([1, -2], {}, "seed"),
    ],
)
def test_impossible_requests_are_refused_before_anything_is_written(
    seeds: list[int], options: dict[str, Any], message: str, small_config: Any
) -> None:
    config = small_config()
    with pytest.raises(ConfigError, match=message):
        ExperimentManager(config).run(seeds, **options)
    assert not Path(config.output_dir).exists()


def test_the_summary_is_over_metrics_that_all_runs_have() -> None:
    runs = [
        TrainResult(Path(), Path(), {"b": 1.0, "a": 2.0, "once": 5.0}, None),
        TrainResult(Path(), Path(), {"b": 4.0, "a": 2.0}, None),
    ]
    summary = ExperimentManager.summary(runs)
    assert list(summary) == ["a", "b"]
    assert summary["a"] == (2.0, 0.0)
    assert summary["b"][0] == 2.5
    assert summary["b"][1] > 0
