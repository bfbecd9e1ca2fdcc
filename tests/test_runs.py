"""Run directories: one process at a time, and every row of metrics reaches every sink."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rl_training.cli.main import main
from rl_training.config import OutputError
from rl_training.runs import metrics
from rl_training.runs.lock import RunLock
from rl_training.runs.reading import read_rows
from rl_training.runtime import Callback, TrainerState, resume, train

QUICK = ["total_timesteps=20", "hidden_sizes=[8]", "eval_episodes=1", "checkpoint_interval=10",
         "log_interval=10", "eval_interval=10"]  # fmt: skip
LOGGER = """
import json
from rl_training.runs.metrics import Sink, register_logger

class Rows(Sink):
    def __init__(self, run_dir):
        self.path = run_dir / "own.jsonl"

    def write(self, row):
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\\n")

    def close(self):
        (self.path.parent / "closed").touch()

register_logger("rows", Rows)
"""


@pytest.fixture(autouse=True)
def _registered_loggers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_LOGGERS", {})


def test_a_lock_names_its_holder_and_is_free_at_once_after_kill(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from rl_training.runs.lock import RunLock\n"
        "with RunLock(Path(sys.argv[1])): print('locked', flush=True); time.sleep(60)"
    )
    words = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        message = f"is being trained by process {holder.pid}"
        with pytest.raises(OutputError, match=message), RunLock(tmp_path):
            pass
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        with RunLock(tmp_path):
            assert (tmp_path / ".lock.pid").read_text() == f"{os.getpid()} {platform.node()}"


def test_a_lock_file_of_an_older_version_does_not_lock(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("4711")
    with RunLock(tmp_path), pytest.raises(OutputError), RunLock(tmp_path):
        pass
    with RunLock(tmp_path):
        pass


def test_a_logger_plugin_receives_every_row_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("logger.py").write_text(LOGGER)
    assert main(["train", "bc/pendulum", *QUICK, "--plugin", "logger.py"]) == 0
    (run,) = Path("runs").glob("*")
    rows = read_rows(run / "own.jsonl")
    assert rows == read_rows(run / "metrics.jsonl")
    assert [row["step"] for row in rows if "eval/return_mean" in row] == [10, 20]
    assert [row["step"] for row in rows if "train/actor_loss" in row] == [10, 20]
    assert (run / "closed").exists()


def test_an_installed_logger_is_found_by_its_entry_point(
    small_config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "site" / "row_logger-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: row-logger\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[rl_training.loggers]\nrows = row_logger\n")
    (info.parent / "row_logger.py").write_text(LOGGER)
    monkeypatch.syspath_prepend(str(info.parent))
    run = train(small_config()).run_dir
    assert read_rows(run / "own.jsonl") == read_rows(run / "metrics.jsonl")


def test_callbacks_see_every_row_as_it_is_logged(pendulum_config: Any) -> None:
    seen: list[dict[str, Any]] = []

    class Log(Callback):
        def on_log(self, state: TrainerState, metrics: Any) -> None:
            assert state.run_dir is not None
            assert read_rows(state.run_dir / "metrics.jsonl")[-1]["step"] == state.global_step
            seen.append({"step": state.global_step, **metrics})

    run = train(pendulum_config(), callbacks=[Log()]).run_dir
    rows = read_rows(run / "metrics.jsonl")
    without_clocks = [
        {key: value for key, value in row.items() if key not in ("updates", "epoch")}
        for row in rows
    ]
    assert seen == without_clocks


def test_a_resumed_sink_is_told_which_rows_stay(pendulum_config: Any) -> None:
    told: list[tuple[list[int], int]] = []

    class Sink(metrics.Sink):
        def cut_back(self, rows: Any, step: int) -> None:
            told.append(([row["step"] for row in rows], step))

    run = train(pendulum_config()).run_dir
    metrics.register_logger("sink", lambda _: Sink())
    resume(run, total_timesteps=50)
    ((steps, step),) = told
    assert step == 40
    assert steps == [row["step"] for row in read_rows(run / "metrics.jsonl")][: len(steps)]
    assert max(steps) <= 40


def test_tensorboard_shows_what_metrics_jsonl_holds(pendulum_config: Any) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run = train(pendulum_config(algo_kwargs={"tensorboard": True})).run_dir
    accumulator = events.EventAccumulator(str(run / "tensorboard")).Reload()
    shown = {event.step: event.value for event in accumulator.Scalars("eval/return_mean")}
    rows = read_rows(run / "metrics.jsonl")
    logged = {row["step"]: row["eval/return_mean"] for row in rows if "eval/return_mean" in row}
    assert shown == pytest.approx(logged)
    names = {key for row in rows for key in row if "/" in key}
    assert set(accumulator.Tags()["scalars"]) == names


def test_run_directories_need_neither_torch_nor_numpy() -> None:
    script = (
        "from rl_training.runs import layout, lock, metadata, metrics, reading\n"
        "from rl_training.reports import configurations\n"
        "import json, sys; print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
    assert not {"torch", "numpy", "gymnasium"} & set(json.loads(done.stdout))
