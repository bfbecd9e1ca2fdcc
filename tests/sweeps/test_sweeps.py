"""Sweeps: runs side by side that are the same as alone, whatever is killed on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.runs import assert_same_run

from rl_training import api
from rl_training.cli.main import main
from rl_training.config import ConfigError
from rl_training.runtime import train
from rl_training.sweeps import RunOptions, Sweep, run_sweep
from rl_training.sweeps.directory import SweepDirectory
from rl_training.sweeps.executor import Limits
from rl_training.sweeps.local import LocalExecutor
from rl_training.sweeps.probe import Cost, probe
from rl_training.sweeps.status import TrialStatus

FRAGILE = """
from pathlib import Path
import os, signal
from tests.support.envs import ScriptedEnv

class Fragile(ScriptedEnv):
    '''Does what the file says at its 25th step, once or, early, always.'''
    def __init__(self, trouble):
        self.trouble, self.steps = Path(trouble), 0
    def step(self, action):
        self.steps += 1
        how = self.trouble.read_text() if self.trouble.exists() else ""
        if how and self.steps == (3 if how == "always" else 25):
            if how != "always":
                self.trouble.unlink()
            if how == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("the motor is stuck")
        return super().step(action)
"""


@pytest.fixture(autouse=True)
def _directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def assert_same_as_alone(directory: Path, sweep: Sweep, output: Path) -> None:
    for trial in sweep.trials(directory):
        alone = train(trial.config.replace(output_dir=str(output)))
        assert_same_run(alone.run_dir, directory / trial.name)


def test_every_run_is_the_same_as_alone_and_new_points_are_added(
    pendulum_config: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    description = {"base": pendulum_config("bc").as_dict(), "axes": {"learning_rate": [0.01]}}
    Path("space.yaml").write_text(yaml.safe_dump(description))
    assert main(["sweep", "space.yaml", "--jobs", "2", "-q"]) == 0
    directory = tmp_path / "runs/space"
    (first,) = directory.glob("*/result.json")
    written_at = first.stat().st_mtime_ns
    description["axes"] = {"learning_rate": [0.001, 0.01]}
    Path("space.yaml").write_text(yaml.safe_dump(description))
    capsys.readouterr()
    assert main(["sweep", "space.yaml", "--jobs", "2", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert [point["finished"] for point in facts["points"]] == [1, 1]
    assert first.stat().st_mtime_ns == written_at  # what is finished is not made again
    assert_same_as_alone(directory, Sweep.from_file("space.yaml"), tmp_path / "alone")
    assert main(["report", str(directory), "--json"]) == 0  # the runs are ordinary ones
    assert len(json.loads(capsys.readouterr().out)["runs"]) == 2


@pytest.fixture
def fragile(
    pendulum_config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Sweep]:
    """Two online runs, the second of which meets trouble."""
    (tmp_path / "fragile.py").write_text(FRAGILE)
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(how: str) -> Sweep:
        (tmp_path / "trouble").write_text(how)
        base = pendulum_config("sac").as_dict()
        base |= {"env_id": "fragile:Fragile", "env_kwargs": {}, "eval_episodes": 0}
        points = [
            {"env_kwargs.trouble": str(tmp_path / "none")},
            {"env_kwargs.trouble": str(tmp_path / "trouble")},
        ]
        return Sweep(base=base, points=points)

    return make


@pytest.mark.parametrize("how", ["die", pytest.param("raise", marks=pytest.mark.slow)])
def test_a_run_that_crashes_goes_on_from_its_checkpoint_and_ends_equal(
    how: str, fragile: Callable[[str], Sweep], tmp_path: Path
) -> None:
    sweep = fragile(how)
    result = run_sweep(sweep, "sweep", options=RunOptions(jobs=2, retries=1))
    assert [(o.state, o.attempts) for o in result.outcomes] == [("ended", 1), ("ended", 2)]
    assert_same_as_alone(tmp_path / "sweep", sweep, tmp_path / "alone")


def test_a_run_that_always_crashes_is_marked_failed_and_the_others_go_on(
    fragile: Callable[[str], Sweep], capsys: pytest.CaptureFixture[str]
) -> None:
    values = fragile("always").as_dict()
    Path("space.yaml").write_text(yaml.safe_dump(values))
    assert main(["sweep", "space.yaml", "--retries", "1", "-q"]) == 1
    captured = capsys.readouterr()
    assert "1 of 1" in captured.out
    assert "the motor is stuck" in captured.err
    last = captured.err.splitlines()[-1]
    assert last == "error: 1 of 2 runs failed; logs are in runs/space/trials"


@pytest.fixture
def long_sweep(pendulum_config: Any) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    """Two of three runs at a time, each of a few seconds."""
    base = pendulum_config("sac", total_timesteps=300, checkpoint_interval=25).as_dict()
    base["algo_kwargs"] |= {"eval_interval": 100}
    Path("space.yaml").write_text(yaml.safe_dump({"base": base, "seeds": [1, 2, 3]}))
    started: list[subprocess.Popen[str]] = []

    def start() -> subprocess.Popen[str]:
        words = ["sweep", "space.yaml", "--jobs", "2"]
        process = subprocess.Popen(
            [sys.executable, "-m", "rl_training", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def has_checkpoints() -> bool:
    return len(list(Path("runs/space").glob("*/checkpoints/step_*/manifest.json"))) >= 2


@pytest.mark.parametrize("victims", ["driver", pytest.param("all", marks=pytest.mark.slow)])
def test_after_kill_9_the_same_command_goes_on_and_ends_equal(
    victims: str, long_sweep: Callable[[], subprocess.Popen[str]], tmp_path: Path
) -> None:
    process = long_sweep()
    wait_for(has_checkpoints)
    if victims == "driver":
        process.kill()  # the runs save and end by themselves, perhaps while the next driver waits for them
    else:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    again = long_sweep()
    out, err = again.communicate(timeout=120)
    assert again.returncode == 0, err
    assert "3 of 3" in out
    assert_same_as_alone(tmp_path / "runs/space", Sweep.from_file("space.yaml"), tmp_path / "alone")


def test_ctrl_c_saves_every_run_and_names_the_command_that_goes_on(
    long_sweep: Callable[[], subprocess.Popen[str]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    process = long_sweep()
    wait_for(has_checkpoints)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to every process
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    directory = tmp_path / "runs/space"
    assert f"go on with: rl-training sweep resume {directory}" in err
    assert "Traceback" not in err
    states = {status.state for status in map(SweepDirectory(directory).status, names_in(directory))}
    assert states <= {"interrupted", "ended", "waiting"}
    assert main(["sweep", "resume", str(directory), "--jobs", "2", "-q"]) == 0
    assert_same_as_alone(directory, Sweep.from_file("space.yaml"), tmp_path / "alone")


def names_in(directory: Path) -> list[str]:
    return [record.name for record in SweepDirectory(directory).records()]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such limit")
def test_a_run_beyond_its_memory_fails_alone_and_says_so(small_config: Any, tmp_path: Path) -> None:
    base = small_config("sac", algo_kwargs={"buffer_capacity": 50}).as_dict()
    hungry = {"hidden_sizes": [30_000, 3_000]}
    sweep = Sweep(base=base, points=[{"batch_size": 16}, hungry])
    options = RunOptions(jobs=2, retries=0, limits=Limits(memory=700_000_000))
    result = run_sweep(sweep, "sweep", options=options)
    assert [outcome.state for outcome in result.outcomes] == ["ended", "failed"]
    assert "out of memory: --memory allows 0.7 GB" in result.outcomes[1].error


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"env_id": ["Pendulum-v1", "Pendulum-v9"]}, "there is no environment 'Pendulum-v9'"),
        ({"env_id": ["Pendulum-v1", "CartPole-v1"]}, "sac|td3_bc needs continuous actions"),
        ({"dataset_path": ["nowhere.npz"]}, r"there is no file .*nowhere\.npz"),
    ],
)
def test_what_is_not_there_is_said_for_all_points_before_the_first_run(
    changes: dict[str, Any], message: str, small_config: Any
) -> None:
    sweep = Sweep(base=small_config("td3_bc").as_dict(), axes=changes)
    with pytest.raises(ConfigError, match=message):
        run_sweep(sweep, "sweep")
    assert not Path("sweep").exists()


def test_two_drivers_of_one_sweep_are_refused(
    small_config: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("space.yaml").write_text(yaml.safe_dump({"base": small_config("bc").as_dict()}))
    files = SweepDirectory(Path("runs/space").absolute())
    files.create()
    files.write({}, [])
    with files.lock():
        assert main(["sweep", "space.yaml", "-q"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "is being run by process" in line


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "is no sweep: it has no trials.json"),
        ("{", "is damaged: it is not JSON"),
        ('{"trials": [{"name": "../../etc"}]}', "is damaged: it does not list trials"),
        (
            '{"trials": [{"name": "../x", "label": "", "differs": {}, "config": {}}]}',
            "does not list trials",
        ),
        (
            '{"trials": [{"name": "x", "label": "", "differs": {}, "config": '
            '{"algo": "sac", "env_id": "os:system"}}]}',
            "names the environment 'os:system'",
        ),
    ],
)
def test_a_strangers_sweep_is_refused_in_a_line_or_two(
    content: str | None, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("sweep").mkdir()
    if content is not None:
        Path("sweep/trials.json").write_text(content)
    assert main(["sweep", "resume", "sweep"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert message in lines[0]
    assert len(lines) <= 2


def test_a_directory_of_something_else_is_left_alone(
    small_config: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("space.yaml").write_text(yaml.safe_dump({"base": small_config("bc").as_dict()}))
    Path("thesis").mkdir()
    Path("thesis/chapter.txt").write_text("one")
    assert main(["sweep", "space.yaml", "--output-dir", "thesis"]) == 2
    assert "holds something else than a sweep" in capsys.readouterr().err
    assert [path.name for path in Path("thesis").iterdir()] == ["chapter.txt"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--jobs", "0", "--dry-run"], "Invalid value for '--jobs'"),
        (["--retries", "-1"], "Invalid value for '--retries'"),
        (["--memory", "9999999TB"], "--memory '9999999TB': write a size"),
        (["--memory", "0.1"], "--memory '0.1': write a size"),
    ],
)
def test_impossible_numbers_are_refused_before_anything_is_written(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("space.yaml").write_text("base: bc/pendulum")
    assert main(["sweep", "space.yaml", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert not Path("runs").exists()
    with pytest.raises(ConfigError, match="jobs must be at least 1, got 0"):
        RunOptions(jobs=0)


def test_the_time_of_more_jobs_than_cores_is_that_of_the_cores(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("rl_training.sweeps.probe.probe", lambda _: Cost(0.001, 0.0, 0.0))
    Path("space.yaml").write_text(
        "{base: bc/pendulum, overrides: {total_timesteps: 1000}, seeds: [1, 2, 3, 4, 5, 6, 7, 8]}"
    )
    cores = api.machine.default_jobs()
    assert main(["sweep", "space.yaml", "--dry-run", "--json", "--jobs", str(8 * cores)]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["seconds"] == pytest.approx(max(1.0, 8.0 / cores))


def test_a_probe_measures_also_what_ends_after_few_updates(
    pendulum_config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rl_training.sweeps.probe.SECONDS", 0.0)
    config = pendulum_config("bc", algo_kwargs={"max_updates": 2})
    assert probe(config).update > 0


def test_a_dry_run_lists_the_runs_and_writes_nothing(
    pendulum_config: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rl_training.sweeps.probe.SECONDS", 0.0)
    base = pendulum_config("td3_bc").as_dict()
    Path("space.yaml").write_text(
        yaml.safe_dump({"base": base, "axes": {"tau": [0.1, 0.2]}, "seeds": [1, 2]})
    )
    assert main(["sweep", "space.yaml", "--dry-run", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert [(run["differs"], run["seed"]) for run in plan["runs"]] == [
        ({"tau": tau}, seed) for tau in (0.1, 0.2) for seed in (1, 2)
    ]
    assert all(run["seconds"] > 0 for run in plan["runs"])
    assert not Path("runs").exists()


@pytest.mark.slow
def test_a_killed_nursery_costs_an_attempt_and_nothing_else(
    pendulum_config: Any, tmp_path: Path
) -> None:
    config = pendulum_config(
        "td3_bc",
        total_timesteps=3_000,
        checkpoint_interval=500,
        log_interval=500,
        algo_kwargs={"eval_interval": 1_000},
    )
    sweep = Sweep(config.as_dict(), seeds=[1, 2])
    executor = LocalExecutor()
    killed: list[str] = []

    def kill_once(name: str, status: TrialStatus) -> None:
        if status.state == "running" and not killed:
            killed.append(name)
            os.kill(executor.process, signal.SIGKILL)

    options = RunOptions(jobs=2, retries=1, report=kill_once, make_executor=lambda: executor)
    result = run_sweep(sweep, "sweep", options=options)
    assert killed
    assert [outcome.state for outcome in result.outcomes] == ["ended", "ended"]
    assert_same_as_alone(tmp_path / "sweep", sweep, tmp_path / "alone")
