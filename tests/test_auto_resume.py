"""`train --auto-resume`: a scheduler starts a job again with the same command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rl_training.cli.main import main
from rl_training.runtime import train
from tests.support.runs import assert_same_run, killed_run, tensors_of

WORDS = [
    "td3_bc/pendulum", "total_timesteps=40", "checkpoint_interval=10", "log_interval=10",
    "hidden_sizes=[8]", "batch_size=8", "eval_episodes=1", "eval_interval=20", "-q",
]  # fmt: skip


def run_dirs(output_dir: str) -> list[Path]:
    return sorted(path for path in Path(output_dir).iterdir() if path.is_dir())


def test_an_interrupted_run_of_the_same_configuration_goes_on(pendulum_config: Any) -> None:
    whole = train(pendulum_config()).run_dir
    interrupted = killed_run(pendulum_config(), 25)
    other = killed_run(pendulum_config(seed=9), 25)
    before = (other / "metrics.jsonl").read_bytes()
    result = train(pendulum_config(), auto_resume=True)
    assert result.run_dir == interrupted
    assert_same_run(whole, interrupted)
    assert (other / "metrics.jsonl").read_bytes() == before


def test_started_again_after_its_end_a_job_trains_nothing(pendulum_config: Any) -> None:
    first = train(pendulum_config())
    files = {path: path.stat().st_mtime_ns for path in first.run_dir.rglob("*.safetensors")}
    again = train(pendulum_config(), auto_resume=True)
    assert (again.run_dir, again.stop_reason) == (first.run_dir, first.stop_reason)
    assert again.metrics["eval/return_mean"] == first.metrics["eval/return_mean"]
    assert {path: path.stat().st_mtime_ns for path in first.run_dir.rglob("*.safetensors")} == files


def test_an_early_stop_is_an_end(pendulum_config: Any) -> None:
    stopping = {"early_stopping": {"metric": "eval/return_mean", "target_value": -1e9}}
    first = train(pendulum_config(algo_kwargs=stopping))
    assert "early" in str(first.stop_reason)
    again = train(pendulum_config(algo_kwargs=stopping), auto_resume=True)
    assert (again.run_dir, again.stop_reason) == (first.run_dir, first.stop_reason)


def test_a_run_without_a_checkpoint_is_begun_anew(pendulum_config: Any) -> None:
    crashed = killed_run(pendulum_config(), 3)
    assert train(pendulum_config(), auto_resume=True).run_dir != crashed


def test_every_seed_of_a_job_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    seeds = ["--seeds", "1,2", "--jobs", "2", "--output-dir", "runs"]
    assert main(["train", *WORDS, *seeds]) == 0
    expected = {path.name: tensors_of(path / "checkpoints/last") for path in run_dirs("runs")}
    for path in run_dirs("runs"):  # killed after the checkpoint at step 20
        for step in ("step_30", "step_40"):
            for file in sorted((path / "checkpoints" / step).rglob("*"), reverse=True):
                file.unlink()
            (path / "checkpoints" / step).rmdir()
        (path / "result.json").unlink()
    assert main(["train", *WORDS, *seeds, "--auto-resume"]) == 0
    assert [path.name for path in run_dirs("runs")] == list(expected)
    for path in run_dirs("runs"):
        found = tensors_of(path / "checkpoints/last")
        assert all(found[key].equal(value) for key, value in expected[path.name].items())
        assert json.loads((path / "result.json").read_text())["step"] == 40
