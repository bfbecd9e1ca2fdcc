"""`--json` prints one JSON document with stable keys to stdout, and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from typer.main import get_command

from rl_training.cli.console import say_json
from rl_training.cli.main import app, main
from rl_training.runtime import train
from tests.support.data import make_fields


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run_dir(pendulum_config: Any) -> str:
    return str(train(pendulum_config()).run_dir)


def document(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    capsys.readouterr()
    returned = main([*words, "--json"])
    captured = capsys.readouterr()
    assert returned == code, captured.err
    return json.loads(captured.out)


def test_every_verb_has_it() -> None:
    command: Any = get_command(app)
    verbs = {**command.commands, **command.commands["data"].commands}
    del verbs["data"]
    for name, verb in verbs.items():
        assert any("--json" in parameter.opts for parameter in verb.params), name


def test_verbs_that_show_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    known = document(capsys, "list")
    assert set(known) == {"algorithms", "configs", "datasets", "suites"}
    assert set(known["algorithms"][0]) == {"name", "summary", "regimes", "action_kinds"}
    assert "td3_bc/pendulum" in known["configs"]
    (option,) = document(capsys, "explain", "td3_bc.bc_alpha")["options"]
    assert (option["name"], option["group"]) == ("bc_alpha", "td3_bc options")
    assert option["schema"]["default"] == 2.5
    assert option["schema"]["minimum"] == 0
    (nested,) = document(capsys, "explain", "bc.early_stopping.patience")["options"]
    assert nested["schema"]["type"] == "integer"
    algorithm = document(capsys, "explain", "bc")
    assert set(algorithm) == {"algorithm", "summary", "options"}
    assert "eval_interval" in [option["name"] for option in algorithm["options"]]
    capsys.readouterr()
    assert main(["config", "bc/pendulum"]) == 0
    text = capsys.readouterr().out
    assert document(capsys, "config", "bc/pendulum") == yaml.safe_load(text)


def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    facts = document(capsys, "doctor")
    assert {"versions", "device", "extras", "algorithms", "configs", "problems"} <= set(facts)
    assert facts["problems"] == []


def test_train_and_resume(capsys: pytest.CaptureFixture[str]) -> None:
    quick = ["total_timesteps=20", "hidden_sizes=[8]", "eval_episodes=1", "eval_interval=10"]
    words = ["train", "bc/pendulum", *quick, "--seeds", "1,2", "--jobs", "1"]
    trained = document(capsys, *words)
    assert set(trained) == {"runs", "over_seeds"}
    assert len(trained["runs"]) == 2
    assert set(trained["runs"][0]) == {"run", "checkpoint", "stop_reason", "metrics", "warnings"}
    assert set(trained["over_seeds"]["eval/return_mean"]) == {"mean", "std"}
    run = trained["runs"][0]["run"]
    resumed = document(capsys, "resume", run, "--total-timesteps", "30")
    assert resumed["runs"][0]["checkpoint"].endswith("step_30")
    assert resumed["over_seeds"] == {}


def test_eval_predict_and_report(run_dir: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert document(capsys, "eval", run_dir, "--episodes", "1")["eval/length_mean"] == 30
    scored = document(capsys, "eval", run_dir, "--episodes", "1", "--video")
    assert Path(scored["videos"]).is_dir()
    assert np.shape(document(capsys, "predict", run_dir, "--obs", "[1, 0, 0]")["actions"]) == (1,)
    words = ["--obs", "[[1, 0, 0]]", "--output", "a.npz"]
    assert document(capsys, "predict", run_dir, *words) == {"count": 1, "output": "a.npz"}
    report = document(capsys, "report", run_dir)
    assert {"runs", "groups", "tasks", "improvements", "broken", "notes"} <= set(report)


def test_data(capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("log.npz", **make_fields())
    assert document(capsys, "data", "info", "log.npz")["transitions"] == 400
    written = document(capsys, "data", "convert", "log.npz", "out.npz")
    assert written == {"transitions": 400, "output": "out.npz"}
    words = ["--env", "Pendulum-v1", "--steps", "20", "-o", "new.npz"]
    assert document(capsys, "data", "collect", *words) == {"transitions": 20, "output": "new.npz"}
    np.savez("bad.npz", **{**make_fields(), "rewards": np.full(400, np.nan)})
    findings = document(capsys, "data", "check", "bad.npz", code=1)
    assert {"level", "name", "row", "message", "fix"} <= set(findings[0])


def test_errors_are_lines_on_stderr_as_ever(capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["train", "bc/pendulum", "tua=1", "--json"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: tua: unknown key")


def test_numbers_that_json_cannot_hold_are_null(capsys: pytest.CaptureFixture[str]) -> None:
    say_json({"a": float("nan"), "b": [float("inf"), 1.5]})
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": [None, 1.5]}


def test_what_others_print_does_not_join_the_document(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text(
        "import os\nprint('a plugin was imported')\nos.system('echo a program has started')\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "rl_training", "list", "--json", "--plugin", "loud.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["configs"]
    assert "a plugin was imported" in done.stderr
    assert "a program has started" in done.stderr
