"""Sweeps on a cluster of three nodes: whatever is lost, the runs are those of one machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cluster.conftest import ThreeNodes, kill, small_trials, wait_until
from tests.support.runs import assert_same_run

from rl_training.runs.layout import read_step, step_directories
from rl_training.sweeps.description import Trial
from rl_training.sweeps.directory import SweepDirectory
from rl_training.sweeps.ray_executor import RayOptions, ray_cluster
from rl_training.sweeps.running import RunOptions, SweepResult, run_sweep
from rl_training.sweeps.status import TrialStatus

pytestmark = pytest.mark.cluster
STORAGES = ("shared", "returned")


def sweep_on(
    address: str,
    trials: list[Trial],
    directory: Path,
    report: Callable[[str, TrialStatus], None] = lambda *_: None,
    **options: Any,
) -> SweepResult:
    options = {"resources": "cpus=1", **options}
    with ray_cluster(RayOptions(address, **options), [t.config for t in trials]) as cluster:
        run_options = RunOptions(
            cluster.jobs, report=report, make_executor=cluster.executor(directory)
        )
        return run_sweep(trials, directory, options=run_options)


def states(result: SweepResult) -> set[str]:
    return {outcome.error or outcome.state for outcome in result.outcomes}


def assert_same_sweep(reference: Path, directory: Path) -> None:
    trials = small_trials(directory)
    files = SweepDirectory(directory)
    for trial in trials:
        assert files.is_finished(trial.name)
        assert_same_run(reference / trial.name, directory / trial.name)
    leftovers = [path.name for path in directory.rglob(".*") if not path.name.startswith(".lock")]
    assert leftovers == []


class LosesNode:
    """Loses a node once a trial on it has a checkpoint."""

    def __init__(self, directory: Path, nodes: ThreeNodes, lose: Callable[[Any], None]) -> None:
        self.directory, self.nodes, self.lose = directory, nodes, lose
        self.lost: str | None = None

    def __call__(self, name: str, status: TrialStatus) -> None:
        checkpoints = step_directories(self.directory / name / "checkpoints")
        if self.lost is None and status.state == "running" and checkpoints:
            node = self.nodes.node_of(status.process)
            if node is not None:
                self.lost = name
                self.lose(node)


@pytest.mark.parametrize(
    ("storage", "loss"),
    [("shared", "remove"), ("returned", "cut_power"), ("returned", "remove")],
)
def test_a_node_that_is_lost_changes_no_run(
    storage: str, loss: str, nodes: ThreeNodes, reference: Path, tmp_path: Path
) -> None:
    directory = tmp_path / "sweep"
    trials = small_trials(directory)
    losing = LosesNode(directory, nodes, getattr(nodes, loss))
    result = sweep_on(nodes.address, trials, directory, losing, storage=storage)
    assert states(result) == {"ended"}
    attempts = {outcome.task.name: outcome.attempts for outcome in result.outcomes}
    assert losing.lost is not None
    assert attempts[losing.lost] == 2
    metadata = json.loads((directory / losing.lost / "metadata.json").read_text())
    assert len(metadata["resumed"]) == 1
    assert_same_sweep(reference, directory)


def test_a_trial_that_is_killed_takes_nothing_along(
    nodes: ThreeNodes, reference: Path, tmp_path: Path
) -> None:
    killed: list[str] = []

    def report(name: str, status: TrialStatus) -> None:
        if not killed and status.state == "running" and status.step > 0:
            killed.append(name)
            kill(status.process)

    directory = tmp_path / "sweep"
    result = sweep_on(nodes.address, small_trials(directory), directory, report)
    assert states(result) == {"ended"}
    attempts = {outcome.task.name: outcome.attempts for outcome in result.outcomes}
    assert attempts.pop(killed[0]) == 2
    assert set(attempts.values()) == {1}
    assert_same_sweep(reference, directory)


def command(address: str, sweep_file: Path, directory: Path, storage: str) -> list[str]:
    return [
        *(sys.executable, "-m", "rl_training", "sweep", str(sweep_file)),
        *("--output-dir", str(directory), "--backend", "ray", "--address", address),
        *("--storage", storage),
    ]


@pytest.fixture
def sweep_file(tmp_path: Path) -> Path:
    """A file that describes the trials of the reference."""
    points = []
    for trial in small_trials(tmp_path)[:2]:
        values = trial.config.as_dict()
        points.append({k: v for k, v in values.items() if k not in ("seed", "output_dir")})
    path = tmp_path / "space.yaml"
    path.write_text(yaml.safe_dump({"base": points, "seeds": [1, 2]}))
    return path


def begin(words: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        words, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )


def has_checkpoints(directory: Path) -> bool:
    return any(step_directories(run / "checkpoints") for run in directory.glob("*__*"))


@pytest.mark.parametrize("storage", STORAGES)
def test_a_driver_that_is_killed_comes_back(
    storage: str, nodes: ThreeNodes, reference: Path, tmp_path: Path, sweep_file: Path
) -> None:
    directory = tmp_path / "sweep"
    words = command(nodes.address, sweep_file, directory, storage)
    driver = begin(words)
    wait_until(lambda: has_checkpoints(directory), what="a checkpoint")
    driver.kill()
    driver.communicate()
    ended = subprocess.run(words, capture_output=True, text=True, timeout=200)
    assert ended.returncode == 0, ended.stderr
    assert_same_sweep(reference, directory)


def test_ctrl_c_saves_every_trial_and_the_same_command_goes_on(
    nodes: ThreeNodes, reference: Path, tmp_path: Path, sweep_file: Path
) -> None:
    directory = tmp_path / "sweep"
    words = command(nodes.address, sweep_file, directory, "returned")
    driver = begin(words)
    wait_until(lambda: has_checkpoints(directory), what="a checkpoint")
    os.killpg(driver.pid, signal.SIGINT)
    _, err = driver.communicate(timeout=100)
    assert driver.returncode == 130, err
    assert "Traceback" not in err
    assert "go on with: rl-training sweep resume" in err
    files = SweepDirectory(directory)
    statuses = {record.name: files.status(record.name) for record in files.records()}
    begun = [name for name, status in statuses.items() if status.step > 0]
    assert begun
    saved = []
    assert {status.state for status in statuses.values()} <= {"interrupted", "ended", "waiting"}
    for name in begun:  # saved when it was asked to, not only at an interval
        newest = read_step(step_directories(directory / name / "checkpoints")[-1])
        assert newest >= statuses[name].step
        saved.append(newest % 50)
    assert any(saved), "all of them happened to be at an interval of checkpoints"
    ended = subprocess.run(words, capture_output=True, text=True, timeout=200)
    assert ended.returncode == 0, ended.stderr
    assert_same_sweep(reference, directory)


def test_ray_is_started_for_the_command_and_survives_ctrl_c_until_all_is_saved(
    tmp_path: Path, sweep_file: Path, reference: Path
) -> None:
    """A terminal sends the signal to Ray's processes too."""
    directory = tmp_path / "sweep"
    words = command("local", sweep_file, directory, "shared")
    driver = begin(words)
    wait_until(lambda: has_checkpoints(directory), what="a checkpoint")
    os.killpg(driver.pid, signal.SIGINT)
    _, err = driver.communicate(timeout=100)
    assert driver.returncode == 130, err
    assert "Ray has 1 node" in err
    ended = subprocess.run(words, capture_output=True, text=True, timeout=200)
    assert ended.returncode == 0, ended.stderr
    assert_same_sweep(reference, directory)
