"""The examples run, with small budgets, and do what their first line says."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from rl_training.algorithms import registry
from rl_training.api import algorithms as managed
from rl_training.runs import metrics

EXAMPLES = Path(__file__).parents[1] / "examples"
TESTED = {"own_log", "own_environment", "own_algorithm", "finetune_online", "callback_and_logger"}


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """Imports an example by name, as running it would; what it registers is forgotten afterwards."""
    registry.discover()
    monkeypatch.setattr(registry, "_SPECS", dict(registry._SPECS))
    monkeypatch.setattr(managed, "_MANAGED", dict(managed._MANAGED))
    monkeypatch.setattr(metrics, "_LOGGERS", dict(metrics._LOGGERS))
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.chdir(tmp_path)
    yield importlib.import_module
    for name in TESTED:
        sys.modules.pop(name, None)


def test_every_example_is_tested() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == TESTED | {"demo"}


@pytest.mark.parametrize("name", sorted(TESTED))
def test_an_example_is_short(name: str) -> None:
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) <= 80


def test_own_log_gives_a_controller_within_the_bounds_of_the_valve(
    load: Callable[[str], ModuleType], capsys: pytest.CaptureFixture[str]
) -> None:
    load("own_log").main(200, "runs")
    printed = capsys.readouterr().out
    assert "980 transitions in 20 shifts" in printed
    powers = [float(word) for word in re.findall(r"power ([\d.]+)", printed)]
    assert len(powers) == 3
    assert powers[0] > powers[2]  # colder needs more
    assert all(0 <= power <= 1 for power in powers)


def test_own_log_has_no_transition_from_one_shift_to_the_next(
    load: Callable[[str], ModuleType],
) -> None:
    example = load("own_log")
    dataset = example.read_log(example.write_log())
    assert dataset.terminations.sum() == 0
    assert dataset.truncations.sum() == 20
    assert (dataset.obs[:, 1] == dataset.next_obs[:, 1]).all()  # the set point of one shift


def test_own_environment_trains_and_evaluates(
    load: Callable[[str], ModuleType], capsys: pytest.CaptureFixture[str]
) -> None:
    load("own_environment").main(160, "runs")
    printed = capsys.readouterr().out
    assert re.search(r"return -\d", printed)
    assert printed.count("valve") == 3


def test_own_environment_separates_the_end_of_the_task_from_the_time_limit(
    load: Callable[[str], ModuleType],
) -> None:
    tank = load("own_environment").WaterTank()
    tank.reset(seed=0)
    tank.temperature = 99.0
    _, _, terminated, truncated, _ = tank.step([1.0])
    assert (terminated, truncated) == (True, False)


def test_own_algorithm_trains_beside_a_built_in_one(
    load: Callable[[str], ModuleType], capsys: pytest.CaptureFixture[str]
) -> None:
    load("own_algorithm").main(100, "runs")
    printed = capsys.readouterr().out
    share = re.search(r"filtered_bc +return +-[\d.]+ +good actions ([\d.]+)", printed)
    assert share is not None, printed
    assert 0 < float(share[1]) < 1


def test_finetuning_online_starts_from_the_offline_policy(
    load: Callable[[str], ModuleType], capsys: pytest.CaptureFixture[str]
) -> None:
    load("finetune_online").main(60, 60, "runs")
    printed = capsys.readouterr().out
    assert "offline, 60 updates" in printed
    assert "online, 60 more steps" in printed
    assert len(list(Path("runs").iterdir())) == 2


def test_callback_and_logger_see_every_row(
    load: Callable[[str], ModuleType], capsys: pytest.CaptureFixture[str]
) -> None:
    load("callback_and_logger").main(80, "runs")
    printed = capsys.readouterr().out
    assert "stopped: " in printed
    assert re.findall(r"^step (\d+):", printed, re.M) == ["20", "40", "60", "80"]


def test_callback_stops_the_run_at_its_limit(load: Callable[[str], ModuleType]) -> None:
    example = load("callback_and_logger")
    guard = example.StopWhenValuesExplode(limit=-1e9)
    algo = example.TD3BC.from_config(
        "td3_bc/pendulum", total_timesteps=100, log_interval=10, eval_episodes=0
    )
    result = algo.learn(callbacks=[guard])
    assert result.stop_reason == "q_mean is above -1000000000.0"
    assert algo.config.total_timesteps == 100
    assert result.checkpoint_path.name == "step_10"
