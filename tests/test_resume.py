"""Train 2N = train N, be killed, resume, train N: bit for bit, at any point, for every algorithm."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rl_training import api
from rl_training.algorithms import get_algorithm_spec, list_algorithm_specs
from rl_training.config import CheckpointError, ConfigError, OutputError, RunError
from rl_training.runtime import Callback, TrainerState, resume, train
from rl_training.runtime.checkpoints import store
from rl_training.runtime.evaluation.callback import EvaluationCallback
from rl_training.runtime.evaluation.evaluator import Evaluator
from tests.support.algorithms import collects
from tests.support.runs import (
    KillAtUpdate,
    Killed,
    assert_same_run,
    killed_run,
    metrics_of,
    tensors_of,
)

NAMES = [spec.name for spec in list_algorithm_specs()]
UNFRIENDLY = {
    "learning_rate_schedule": {"actor": "cosine"},
    "warmup_steps": 9,
    "early_stopping": {"patience": 50, "min_delta": 0.1},
}


@pytest.mark.parametrize("name", NAMES)
def test_killed_and_resumed_is_the_uninterrupted_run(name: str, pendulum_config: Any) -> None:
    network = list(get_algorithm_spec(name).algorithm.losses)[-1]
    controls = {**UNFRIENDLY, "learning_rate_schedule": {network: "cosine"}}
    if not collects(name):
        controls |= {"normalize_observations": True, "reward_scale": 0.1}
    config = pendulum_config(name, algo_kwargs=controls)
    whole = train(config)
    update = random.Random(name).randrange(11, 30)
    run_dir = killed_run(config, update)
    resumed = resume(run_dir)
    assert resumed.run_dir == run_dir
    assert_same_run(whole.run_dir, run_dir)


@pytest.mark.parametrize("update", [11, 15, 20, 29, 30, 39])
def test_resume_at_unfriendly_points(update: int, pendulum_config: Any) -> None:
    """Just after a save, on an evaluation, on a log row, on all of them, before the end."""
    config = pendulum_config(algo_kwargs=UNFRIENDLY)
    whole = train(config)
    run_dir = killed_run(config, update)
    resume(run_dir)
    assert_same_run(whole.run_dir, run_dir)


def test_killed_twice_is_still_the_same_run(pendulum_config: Any) -> None:
    config = pendulum_config(algo_kwargs=UNFRIENDLY)
    whole = train(config)
    run_dir = killed_run(config, 23)
    with pytest.raises(Killed):
        resume(run_dir, callbacks=[KillAtUpdate(34)])
    resume(run_dir)
    assert_same_run(whole.run_dir, run_dir)
    metadata = json.loads((run_dir / "metadata.json").read_text())
    assert [Path(entry["from"]).name for entry in metadata["resumed"]] == ["step_20", "step_30"]
    assert metadata["argv"]


def test_longer_budget_continues_the_same_run(pendulum_config: Any) -> None:
    """A schedule keeps its first horizon; a constant one makes N then 2N equal to 2N."""
    whole = train(pendulum_config(total_timesteps=60))
    half = train(pendulum_config(total_timesteps=33))  # no multiple of any interval
    resume(half.run_dir, total_timesteps=60)
    assert_tensors = tensors_of(whole.checkpoint_path)
    found = tensors_of(half.run_dir / "checkpoints/last")
    assert all(torch.equal(assert_tensors[name], found[name]) for name in assert_tensors)
    assert metrics_of(whole.run_dir) == metrics_of(half.run_dir)


def test_schedule_keeps_the_horizon_of_the_first_total(pendulum_config: Any) -> None:
    controls = {"learning_rate_schedule": "linear"}
    short = train(pendulum_config(total_timesteps=20, algo_kwargs=controls))
    before = tensors_of(short.checkpoint_path)
    longer = resume(short.run_dir, total_timesteps=40)
    after = tensors_of(longer.checkpoint_path)
    moved = [
        k for k in before if k.startswith("networks.actor") and not torch.equal(before[k], after[k])
    ]
    assert moved == []  # the rate had reached 0 at the first horizon


def test_load_and_learn_resumes_exactly(pendulum_config: Any, tmp_path: Path) -> None:
    config = pendulum_config()
    whole = train(config)
    run_dir = killed_run(config, 25)
    again = api.TD3BC.load(run_dir / "checkpoints" / "step_20")
    result = again.learn()
    expected, found = tensors_of(whole.checkpoint_path), tensors_of(result.checkpoint_path)
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_resume_from_an_older_checkpoint_branches_and_spoils_nothing(pendulum_config: Any) -> None:
    whole = train(pendulum_config())
    before = {p: p.stat().st_mtime_ns for p in whole.run_dir.rglob("*") if p.is_file()}
    branched = resume(whole.run_dir / "checkpoints" / "step_20")
    assert branched.run_dir != whole.run_dir
    assert {p: p.stat().st_mtime_ns for p in whole.run_dir.rglob("*") if p.is_file()} == before
    expected, found = tensors_of(whole.checkpoint_path), tensors_of(branched.checkpoint_path)
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    assert metrics_of(whole.run_dir) == metrics_of(branched.run_dir)


def test_complete_run_has_nothing_to_resume(pendulum_config: Any) -> None:
    whole = train(pendulum_config())
    again = resume(whole.run_dir)
    assert again.stop_reason == "total_timesteps"
    assert again.checkpoint_path == whole.checkpoint_path
    assert again.metrics == whole.metrics


def test_early_stopped_run_says_why_and_goes_on_when_told(pendulum_config: Any) -> None:
    stopping = {"early_stopping": {"patience": 1, "min_delta": 1e9}, "eval_interval": 5}
    stopped = train(pendulum_config(algo_kwargs=stopping))
    assert stopped.stop_reason is not None
    assert stopped.stop_reason.startswith("early stopping")
    with pytest.raises(ConfigError, match=r"has not improved.*--ignore-stop"):
        resume(stopped.run_dir)
    further = resume(stopped.run_dir, ignore_stop=True)
    assert metrics_of(further.run_dir)[-1]["step"] > 10
    longer = resume(stopped.run_dir, total_timesteps=90)
    assert longer.stop_reason is not None


def test_killed_in_the_final_evaluation_is_still_the_same_run(
    pendulum_config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last checkpoint is on disk, the final evaluation is not: resume makes up for it."""
    config = pendulum_config(total_timesteps=38)
    whole = train(config)

    def die(self: Any, state: TrainerState) -> None:
        raise Killed

    monkeypatch.setattr(EvaluationCallback, "on_train_end", die)
    with pytest.raises(Killed):
        train(config)
    monkeypatch.undo()
    (run_dir,) = set(Path(config.output_dir).glob("*")) - {whole.run_dir}
    assert resume(run_dir).stop_reason == "total_timesteps"
    assert_same_run(whole.run_dir, run_dir)


def test_a_final_evaluation_that_failed_leaves_the_checkpoint_of_the_uninterrupted_run(
    pendulum_config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a longer run goes on from the same state, too."""
    config = pendulum_config(total_timesteps=38)
    whole = train(config)
    score = Evaluator.run

    def fail(self: Any, seeds: Any) -> Any:
        if list(Path(config.output_dir).glob("*/checkpoints/step_38")) != [saved]:
            raise RunError("the motor is stuck")
        return score(self, seeds)

    saved = whole.run_dir / "checkpoints" / "step_38"
    monkeypatch.setattr(Evaluator, "run", fail)
    with pytest.raises(RunError, match="the run up to step 38 is saved"):
        train(config)
    monkeypatch.undo()
    (run_dir,) = set(Path(config.output_dir).glob("*")) - {whole.run_dir}
    resume(run_dir)
    for further in (whole.run_dir, run_dir):
        resume(further, total_timesteps=50)
    assert_same_run(whole.run_dir, run_dir)


def test_killed_between_saving_and_pointing_goes_on_in_place(
    pendulum_config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = pendulum_config()
    whole = train(config)
    original = store.point

    def die(checkpoints: Path, name: str, step: int) -> None:
        if step == 20:
            raise Killed
        original(checkpoints, name, step)

    monkeypatch.setattr(store, "point", die)
    with pytest.raises(Killed):
        train(config)
    monkeypatch.undo()
    (run_dir,) = set(Path(config.output_dir).glob("*")) - {whole.run_dir}
    assert (run_dir / "checkpoints" / "last").resolve().name != "step_20"
    assert resume(run_dir).run_dir == run_dir
    assert_same_run(whole.run_dir, run_dir)


def test_copy_with_links_turned_into_directories_goes_on_in_place(
    pendulum_config: Any, tmp_path: Path
) -> None:
    run_dir = killed_run(pendulum_config(), 25)
    (run_dir / "checkpoints" / ".step_30.77.tmp").mkdir()
    (run_dir / "checkpoints" / "step_900").mkdir()  # no checkpoint: nothing is in it
    copy = tmp_path / "copied" / run_dir.name
    shutil.copytree(run_dir, copy, symlinks=False)
    assert resume(copy / "checkpoints" / "last").run_dir == copy
    assert (copy / "checkpoints" / "last").is_symlink()
    assert not list((copy / "checkpoints").glob(".*"))


def test_branch_lies_beside_its_run_and_has_a_best(
    pendulum_config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train(pendulum_config(algo_kwargs={"eval_interval": 5}))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    branched = resume(whole.run_dir / "checkpoints" / "step_20")
    assert branched.run_dir.parent == whole.run_dir.parent
    best = (branched.run_dir / "checkpoints" / "best").resolve()
    assert best.name == (whole.run_dir / "checkpoints" / "best").resolve().name
    assert (best / "manifest.json").exists()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_run_is_trained_by_one_process_at_a_time(pendulum_config: Any) -> None:
    class ResumeToo(Callback):
        def on_update_end(self, state: TrainerState, terms: Any) -> None:
            if state.update_count == 25:
                with pytest.raises(OutputError, match=f"being trained by process {os.getpid()}"):
                    resume(state.run_dir or "")

    result = train(pendulum_config(), callbacks=[ResumeToo()])
    assert not (result.run_dir / ".lock.pid").exists()


@pytest.mark.parametrize("damage", [b"", b"\xff\xfe", b'{"step": 7, "upd'])
def test_damaged_metrics_do_not_stop_a_resume(damage: bytes, pendulum_config: Any) -> None:
    run_dir = killed_run(pendulum_config(), 25)
    for name in ("metrics.jsonl", "evaluations.npz"):
        (run_dir / name).write_bytes(damage)
    assert resume(run_dir).stop_reason == "total_timesteps"
    assert (run_dir / "result.json").exists()


@pytest.mark.parametrize(("budget", "value"), [("max_updates", 13), ("max_epochs", 1)])
def test_a_larger_total_lifts_the_budget_that_ended_the_run(
    budget: str, value: int, pendulum_config: Any
) -> None:
    stopped = train(pendulum_config(algo_kwargs={budget: value}))
    assert stopped.stop_reason == budget
    assert resume(stopped.run_dir, total_timesteps=45).checkpoint_path.name == "step_45"


def test_data_that_changed_is_noticed(small_config: Any, log_file: Path) -> None:
    run_dir = killed_run(small_config(), 25)
    with np.load(log_file) as saved:
        fields = dict(saved)
    fields["rewards"][7] += 1
    np.savez(log_file, **fields)
    with pytest.raises(CheckpointError, match="other data"):
        resume(run_dir)


def cli(*words: str, **options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "rl_training", *words]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


SMALL = ["hidden_sizes=[8,8]", "total_timesteps=2000", "checkpoint_interval=100", "eval_episodes=1"]


def start_until_checkpoint(output_dir: Path) -> tuple[subprocess.Popen[str], Path]:
    process = cli("train", "td3_bc/pendulum", *SMALL, "--output-dir", str(output_dir))
    deadline = time.monotonic() + 120
    while not list(output_dir.glob("*/checkpoints/last")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    time.sleep(0.3)
    return process, next(output_dir.glob("*"))


def test_kill_9_and_resume_in_other_processes_is_the_same_run(tmp_path: Path) -> None:
    process, run_dir = start_until_checkpoint(tmp_path / "killed")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    whole = cli("train", "td3_bc/pendulum", *SMALL, "--output-dir", str(tmp_path / "whole"))
    resumed = cli("resume", str(run_dir), cwd=tmp_path)
    for other in (whole, resumed):
        output, errors = other.communicate()
        assert other.returncode == 0, output + errors
    assert_same_run(next((tmp_path / "whole").glob("*")), run_dir)


def test_ctrl_c_saves_and_says_how_to_resume(tmp_path: Path) -> None:
    process, run_dir = start_until_checkpoint(tmp_path)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate()
    assert process.returncode == 130, output + errors
    assert f"rl-training resume {run_dir}" in errors
    rows = metrics_of(run_dir)
    resumed = resume(run_dir, total_timesteps=rows[-1]["step"] + 50)
    assert resumed.stop_reason == "total_timesteps"
