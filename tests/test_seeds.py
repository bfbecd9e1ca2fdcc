"""`train --seeds` runs seeds side by side; each of them is a run like any other."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from rl_training.cli import trial_lines
from rl_training.cli.main import main
from rl_training.runs.reading import read_rows
from rl_training.runtime import resume
from rl_training.sweeps.status import TrialStatus

BROKEN_LOGGER = """
from rl_training.config import RunError
from rl_training.runs.metrics import Sink, register_logger

def make(run_dir):
    if "seed2" in run_dir.name:
        raise {error}("the disk of seed 2 is gone")
    return Sink()

register_logger("broken", make)
"""


@pytest.fixture(autouse=True)
def _config_file(tmp_path: Path, pendulum_config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = pendulum_config("bc").as_dict() | {"output_dir": "runs"}
    Path("quick.yaml").write_text(yaml.safe_dump(config))


def run_of(seed: int, output_dir: str = "runs") -> Path:
    (run,) = Path(output_dir).glob(f"*__seed{seed}__*")
    return run


def rows_without_times(run: Path) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in row.items() if not key.startswith("time/")}
        for row in read_rows(run / "metrics.jsonl")
    ]


def test_each_seed_is_the_same_run_as_alone_bit_for_bit(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["train", "quick.yaml", "--seeds", "1,2", "--jobs", "2"]) == 0
    assert "over 2 seeds  eval/return_mean" in capsys.readouterr().out
    for seed in (1, 2):
        assert main(["train", "quick.yaml", f"seed={seed}", "--output-dir", "alone"]) == 0
        together, alone = run_of(seed), run_of(seed, "alone")
        for name in ("model", "optimizer", "state"):
            file = f"checkpoints/last/{name}.safetensors"
            assert (together / file).read_bytes() == (alone / file).read_bytes()
        assert rows_without_times(together) == rows_without_times(alone)


def test_a_seed_that_fails_leaves_the_others(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rl_training.runs.metrics._LOGGERS", {})
    Path("broken.py").write_text(BROKEN_LOGGER.format(error="RunError"))
    words = ["--seeds", "1,2,3", "--jobs", "2", "--plugin", "broken.py"]
    assert main(["train", "quick.yaml", *words]) == 1
    captured = capsys.readouterr()
    assert captured.err.splitlines()[-1] == "error: seed 2: the disk of seed 2 is gone"
    for seed in (1, 3):
        assert f"run         {run_of(seed)}" in captured.out
        assert (run_of(seed) / "result.json").exists()
    assert not list(Path("runs").glob("*__seed2__*"))


@pytest.mark.slow
def test_an_unexpected_error_names_its_seed_and_its_kind(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rl_training.runs.metrics._LOGGERS", {})
    Path("broken.py").write_text(BROKEN_LOGGER.format(error="ZeroDivisionError"))
    words = ["--seeds", "1,2", "--jobs", "2", "--plugin", "broken.py", "--quiet"]
    assert main(["train", "quick.yaml", *words]) == 1
    expected = "error: seed 2: ZeroDivisionError: the disk of seed 2 is gone"
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if "warning:" not in line] == [expected]


def test_a_mistake_of_the_user_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["dataset_kind=npz", "dataset_path=nowhere.npz", "--seeds", "1,2", "--jobs", "2", "-q"]
    assert main(["train", "quick.yaml", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "nowhere.npz" in line


@pytest.fixture
def long_training() -> Iterator[subprocess.Popen[str]]:
    """Two of three seeds at a time, for longer than any test waits."""
    words = ["quick.yaml", "total_timesteps=10000000", "--seeds", "1,2,3", "--jobs", "2"]
    with subprocess.Popen(
        [sys.executable, "-m", "rl_training", "train", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        yield process
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # the seeds, too, should the test have failed


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_a_signal_stops_every_seed_with_a_checkpoint_to_go_on_from(
    number: signal.Signals, long_training: subprocess.Popen[str]
) -> None:
    deadline = time.monotonic() + 120
    while len(list(Path("runs").glob("*/checkpoints/last"))) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    long_training.send_signal(number)  # to the parent alone, as a job scheduler does
    out, err = long_training.communicate(timeout=60)
    assert long_training.returncode == 130
    assert "interrupted before 1 of 3 seeds had begun" in err
    for seed in (1, 2):
        run = run_of(seed)
        assert f"go on with: rl-training resume {run}" in err
        assert f"run         {run}" in out
        step = int((run / "checkpoints" / "last").resolve().name.removeprefix("step_"))
        result = resume(run, total_timesteps=step + 5)
        assert (result.run_dir.name, result.stop_reason) == (run.name, "total_timesteps")
        assert result.checkpoint_path.name == f"step_{step + 5}"
    assert not list(Path("runs").glob("*__seed3__*"))


def test_a_signal_before_the_first_step_leaves_nothing_behind(
    long_training: subprocess.Popen[str],
) -> None:
    assert long_training.stderr is not None
    assert long_training.stderr.readline() == "seed 1  starting\n"
    long_training.send_signal(signal.SIGTERM)
    _, err = long_training.communicate(timeout=60)
    assert long_training.returncode == 130
    assert "Traceback" not in err
    assert "interrupted before 3 of 3 seeds had begun" in err
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("word", "replacement"),
    [
        ("--stack", "--seeds runs the seeds side by side in processes"),
        ("eval_workers=1", "raise eval_interval or lower eval_episodes"),
        ("algo_kwargs.eval_workers=1", "raise eval_interval or lower eval_episodes"),
        ("stepper=compiled", "leave it out, captured losses are faster"),
    ],
)
def test_a_removed_option_names_its_replacement(
    word: str, replacement: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "quick.yaml", word]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "was removed" in line
    assert replacement in line


def test_the_old_name_of_the_captured_stepper_still_works(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["config", "quick.yaml", "stepper=replay"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["algo_kwargs"]["stepper"] == "captured"


class Terminal:
    """A stream that collects what a terminal would be sent."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        """Nothing is held back."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_one_line_for_each_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(trial_lines.sys, "stderr", terminal)
    monkeypatch.setattr(trial_lines, "REFRESH_SECONDS", 0.0)
    running = TrialStatus("running", step=5, total=10, updates_per_second=7.0, steps_per_second=1.0)
    with trial_lines.TrialLines({"a": "seed 1", "b": "seed 2"}) as lines:
        lines.show("a", running)
        lines.show("a", replace(running, step=6, score="return -3.2"))
        lines.show("a", replace(running, step=6, warnings=("the sun [red] is low",)))
    shown = [re.sub(r"\x1b\[\??\d+\w", "", line).split() for line in terminal.text.splitlines()]
    assert ["seed", "1", "warning:", "the", "sun", "[red]", "is", "low"] in shown
    assert [
        "seed",
        "1",
        "running",
        "6/10",
        "7",
        "updates/s",
        "return",
        "-3.2",
        "4",
        "s",
        "left",
    ] in shown
    assert ["seed", "2", "waiting"] in shown
    assert ["1", "running,", "1", "waiting;", "about", "14", "s", "left"] in shown
