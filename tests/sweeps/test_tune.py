"""`rl-training tune`: real runs of a second, signals, pages, and errors of one line."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.fake_trials import FakeExecutor

from rl_training.cli.main import main
from rl_training.reports.search_page import write_search_figures
from rl_training.runs.reading import read_rows
from rl_training.runs.search_record import SearchRecord, read_search
from rl_training.runtime import TrainConfig
from rl_training.sweeps import RunOptions, Search, suggestions, tune

SPACE = "axes:\n  learning_rate: {log_uniform: [1e-4, 1e-2]}\n  batch_size: [8, 16]\n"
SMALL = ["--seeds", "1", "--fresh-seeds", "1", "--jobs", "2", "--quiet"]


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, pendulum_config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = pendulum_config("bc").as_dict() | {"output_dir": "runs", "eval_episodes": 1}
    Path("quick.yaml").write_text(yaml.safe_dump(config))
    Path("space.yaml").write_text(SPACE)


def facts(record: SearchRecord) -> dict[str, Any]:
    return {**record.as_dict(), "wanted": None}


def rows_of(run: Path) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in row.items() if not key.startswith("time/")}
        for row in read_rows(run / "metrics.jsonl")
    ]


def test_a_search_of_real_runs_with_pruning_ends_with_a_configuration_a_score_and_a_page(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["tune", "quick.yaml", "--space", "space.yaml", "--pruner", "hyperband", *SMALL]
    assert main([*words, "--trials", "3"]) == 0
    printed = capsys.readouterr().out
    directory = Path("runs/tune-quick")
    record = read_search(directory)
    assert [trial.number for trial in record.trials] == [0, 1, 2]
    best = record.best
    assert best is not None
    for line in ("honest ", "over 1 fresh seed", "trials      ", f"trial {best.number}: chosen by"):
        assert line in printed
    for trial in record.trials:
        assert set(trial.steps) <= {15, 30}
        (name,) = trial.runs
        last = rows_of(directory / name)[-1]
        assert last["eval/return_mean"] == trial.value
        assert (last["step"] == 40) == (trial.state == "complete")
    # a trial is the run that `train` makes, as far as it came
    values = record.trials[1].values
    words_of_trial = [f"{key}={value}" for key, value in values.items()]
    assert main(["train", "quick.yaml", *words_of_trial, "seed=1", "--output-dir", "a", "-q"]) == 0
    (alone,) = Path("a").iterdir()
    reached = rows_of(directory / record.trials[1].runs[0])
    assert rows_of(alone)[: len(reached)] == reached
    assert TrainConfig(**yaml.safe_load((directory / "best.yaml").read_text())).algo == "bc"
    capsys.readouterr()
    assert main(["report", str(directory), "-o", "page.html", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["best"]["number"] == best.number
    assert shown["written"] == ["page.html"]
    page = Path("page.html").read_text()
    assert "On 1 fresh seed, " in page
    assert "<script" not in page


def test_a_plan_shows_the_space_and_the_first_trials_and_makes_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rl_training.sweeps.probe.SECONDS", 0.01)
    words = ["tune", "quick.yaml", "--space", "space.yaml", "--trials", "2", *SMALL]
    assert main([*words, "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "learning_rate  0.0001 to 0.01, logarithmic  0.0003" in printed
    assert "2 of 2 trials to go, 1 seed each, in runs/tune-quick" in printed
    assert not Path("runs").exists()
    assert main([*words, "--dry-run", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert [trial["trial"] for trial in plan["next"]] == [0, 1]
    assert plan["left"] == 2
    # what it shows is what comes
    search = Search("quick.yaml", "space.yaml", seeds=(1,), fresh_seeds=0)
    executor = FakeExecutor(lambda config, share: share)
    tune(search, "s", trials=2, options=RunOptions(2, make_executor=lambda: executor))
    trials = read_search("s").trials
    assert [dict(trial.values) for trial in trials[:2]] == [t["values"] for t in plan["next"]]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--metric", "eval/nothing"], "a search cannot go by 'eval/nothing'"),
        (["--metric", "validation/td_error"], "set validation_fraction"),
        (["--seeds", "one"], "--seeds 'one': write whole numbers"),
        (["--timeout", "soon"], "--timeout 'soon': write seconds, or a time such as 90m"),
        (["--sampler", "grid"], "sampler: expected one of"),
        (["--space", "nowhere.yaml"], "no space file or packaged space 'nowhere.yaml'"),
        (["--trials", "0"], "trials must be 1 to"),
        (["learning_rate=-1"], "learning_rate: must be > 0"),
    ],
)
def test_a_wrong_command_is_one_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", "quick.yaml", *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1
    assert not Path("runs").exists()


def test_a_search_goes_on_with_its_own_settings(capsys: pytest.CaptureFixture[str]) -> None:
    search = Search("quick.yaml", "space.yaml", seeds=(1,), fresh_seeds=0)
    executor = FakeExecutor(lambda config, share: share)
    tune(search, "s", trials=2, options=RunOptions(2, make_executor=lambda: executor))
    for words, message in (
        (["resume", "s", "--metric", "eval/return_std"], "leave out --metric"),
        (["resume", "s", "--seeds", "3"], "leave out --seeds"),
        (["resume"], "write: rl-training tune resume DIR"),
        (["resume", "nothing"], "nothing is no search"),
    ):
        assert main(["tune", *words]) == 2
        assert message in capsys.readouterr().err
    assert main(["sweep", "resume", "s"]) == 2
    assert "rl-training tune resume" in capsys.readouterr().err
    assert main(["report", "s", "--csv", "tables"]) == 2
    assert "is a search, which has its own metric" in capsys.readouterr().err


def test_a_missing_package_is_one_line_and_only_where_it_is_used(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(suggestions, "import_module", missing)
    assert main(["tune", "quick.yaml", "--space", "space.yaml", *SMALL]) == 2
    assert capsys.readouterr().err == (
        "error: rl-training tune needs optuna: pip install 'rl-training[tune]'\n"
    )
    code = "import sys, rl_training.api as api; api.run_sweep, api.read_search, api.Search; assert 'optuna' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_hostile_texts_in_a_record_are_text_on_its_page() -> None:
    search = Search("quick.yaml", "space.yaml", seeds=(1,), fresh_seeds=0)
    executor = FakeExecutor(lambda config, share: config["algo_kwargs"]["learning_rate"] * share)
    tune(search, "s", trials=3, options=RunOptions(2, make_executor=lambda: executor))
    values = json.loads(Path("s/tune.json").read_text())
    markup = "<script>alert(1)</script>"
    for trial in values["trials"]:
        trial["values"][markup] = [markup, {"deep": [None]}]
        trial["values"]["\x1b[31m"] = float(trial["number"])
        trial["reason"] = markup
    values["settings"] |= {"axes": [markup], "seeds": markup, "sampler": {"a": 1}, "config": 3}
    values["trials"][0] |= {"state": "failed", "value": None}
    Path("s/tune.json").write_text(json.dumps(values))
    assert main(["report", "s", "-o", "page.html"]) == 0
    assert "<script" not in Path("page.html").read_text()
    assert len(write_search_figures("s", "figures")) >= 6


# -- kills -------------------------------------------------------------------------------------------


def start(*words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "rl_training", "tune", *words]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def wait_until(condition: Any, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.slow
def test_ctrl_c_saves_the_search_and_says_how_to_go_on() -> None:
    words = ["quick.yaml", "--space", "space.yaml", "--trials", "4", "--output-dir", "s", *SMALL]
    process = start(*words, "total_timesteps=3000")
    wait_until(lambda: list(Path("s").glob("*/metrics.jsonl")))
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=120)
    assert process.returncode == 130
    assert error.splitlines()[-1] == (
        "interrupted and saved; go on with: rl-training tune resume s"
    )
    assert read_search("s").wanted == 4


@pytest.mark.slow
def test_tune_beats_a_bad_start_on_pendulum_and_goes_on_equally_after_kills(tmp_path: Path) -> None:
    """Twenty trials from a learning rate of 0.3 and hardly any imitation, killed with -9 ten times."""
    Path("space.yaml").write_text(
        "axes:\n  learning_rate: {log_uniform: [1e-4, 1.0]}\n  bc_alpha: {log_uniform: [0.1, 1000]}\n"
        "  batch_size: [64, 256]\n"
    )
    words = [
        "td3_bc/pendulum", "total_timesteps=600", "eval_interval=200", "eval_episodes=3", "log_interval=200",
        "checkpoint_interval=200", "learning_rate=0.3", "bc_alpha=900", "--space", "space.yaml", "--seeds", "1,2",
        "--fresh-seeds", "3", "--trials", "20", "--jobs", "2", "--pruner", "median",
    ]  # fmt: skip
    assert main(["tune", *words, "--output-dir", "whole", "--quiet"]) == 0
    whole = read_search("whole")
    assert whole.best is not None
    assert whole.fresh is not None
    assert whole.trials[0].value is not None
    assert whole.best.value > whole.trials[0].value + 100
    assert whole.fresh.iqm > whole.trials[0].value + 100
    draw = random.Random(0)
    for _ in range(10):
        process = start(*words, "--output-dir", "killed")
        time.sleep(draw.uniform(5, 15))
        # the driver alone, or with all that it has started
        if draw.random() < 0.5:
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert main(["tune", "resume", "killed", "--quiet"]) == 0
    assert facts(read_search("killed")) == facts(whole)
    for trial in whole.trials:
        for name in trial.runs:
            assert rows_of(Path("killed") / name) == rows_of(Path("whole") / name)
            weights = "checkpoints/last/model.safetensors"
            one, other = Path("killed") / name / weights, Path("whole") / name / weights
            assert one.read_bytes() == other.read_bytes()
