"""Environments that fail or hang, signals, divergence: the run that goes on is the same run."""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from rl_training import api
from rl_training.cli import console, signals
from rl_training.config import RunError
from rl_training.runtime import Callback, TrainConfig, TrainerState, resume, train
from rl_training.runtime.experience import collector
from rl_training.runtime.loop import progress
from tests.support.runs import assert_same_run

TROUBLED, ENDLESS = "tests.support.envs:TroubledEnv", "tests.support.envs:EndlessEnv"
NETWORKS = {"batch_size": 8, "hidden_sizes": [8, 8]}


@pytest.fixture
def trouble(tmp_path: Path) -> Path:
    return tmp_path / "trouble"


@pytest.fixture
def config(tmp_path: Path, trouble: Path) -> Any:
    def make(**changes: Any) -> TrainConfig:
        options = {"learning_starts": 10, **NETWORKS, **changes.pop("algo_kwargs", {})}
        values = {
            "algo": "sac",
            "env_id": TROUBLED,
            "env_kwargs": {"trouble": str(trouble)},
            "output_dir": str(tmp_path / "runs"),
            "total_timesteps": 60,
            "log_interval": 7,
            "checkpoint_interval": 20,
            "eval_episodes": 1,
            **changes,
        }
        return TrainConfig(**values, algo_kwargs={"eval_interval": 15, **options})

    return make


def run_of(config: TrainConfig) -> Path:
    (run_dir,) = Path(config.output_dir).glob("*")
    return run_dir


FORMS = {
    "one": {},
    "two": {"num_envs": 2},
    "processes": {"num_envs": 2, "algo_kwargs": {"vector_env": "async"}},
    "one process": {"algo_kwargs": {"vector_env": "async"}},
}


@pytest.mark.parametrize(
    ("how", "form"),
    [
        *((how, form) for how in ("raise", "exit") for form in FORMS),
        ("nan observation", "one"),
        ("nan observation", "two"),
        *(("nan reset", form) for form in FORMS),
        *(
            (how, form)
            for how in ("panic", "interrupt", "textless")
            for form in ("one", "processes")
        ),
        ("unpicklable", "processes"),
    ],
)
def test_a_run_whose_environment_failed_goes_on_as_the_same_run(
    how: str, form: str, config: Any, trouble: Path, tmp_path: Path
) -> None:
    twin = train(config(output_dir=str(tmp_path / "twin"), **FORMS[form])).run_dir
    broken = config(**FORMS[form])
    trouble.write_text(f"{how} 17")
    with pytest.raises(RunError, match="is saved; to go on"):
        train(broken)
    trouble.unlink()
    resume(run_of(broken))
    assert_same_run(twin, run_of(broken))


@pytest.mark.parametrize("form", ["one", "processes"])
def test_an_environment_that_hangs_ends_the_run_after_the_timeout(
    form: str, config: Any, trouble: Path
) -> None:
    changes = dict(FORMS[form])
    options = {**changes.pop("algo_kwargs", {}), "env_step_timeout": 0.5}  # type: ignore[attr-defined]
    broken = config(algo_kwargs=options, eval_episodes=0, **changes)
    trouble.write_text("hang 17")
    with pytest.raises(RunError, match="env_step_timeout"):
        train(broken)
    trouble.unlink()
    assert resume(run_of(broken)).stop_reason == "total_timesteps"


def test_processes_that_hang_time_out_in_any_thread(config: Any, trouble: Path) -> None:
    broken = config(
        num_envs=2, eval_episodes=0, algo_kwargs={"vector_env": "async", "env_step_timeout": 0.5}
    )
    trouble.write_text("hang 17")
    errors: list[BaseException] = []

    def work() -> None:
        try:
            train(broken)
        except RunError as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(60)
    assert "has not answered a step within 0.5 seconds" in str(errors[0])


@pytest.mark.parametrize("after", [17, 33], ids=["while collecting", "while evaluating"])
def test_ctrl_c_ends_the_wait_for_an_environment_and_the_run_goes_on_as_the_same(
    after: int, config: Any, trouble: Path, tmp_path: Path
) -> None:
    evaluated_first = {"eval_interval": 10_000} if after == 17 else {}
    twin = train(config(output_dir=str(tmp_path / "twin"), algo_kwargs=evaluated_first)).run_dir
    broken = config(algo_kwargs=evaluated_first)
    trouble.write_text(f"ctrl-c {after}")
    assert train(broken).stop_reason == "interrupted"
    trouble.unlink()
    resume(run_of(broken))
    assert_same_run(twin, run_of(broken))


def test_an_environment_that_cannot_be_closed_is_an_error_after_all_is_saved(
    config: Any, trouble: Path
) -> None:
    settings = config()
    trouble.write_text("close 0")
    with pytest.raises(
        RunError, match=r"the door is stuck \(while closing; what was done before is saved"
    ):
        train(settings)
    run_dir = run_of(settings)
    assert json.loads((run_dir / "result.json").read_text())["step"] == 60


class SignalAtTick(Callback):
    def __init__(self, tick: int, number: signal.Signals = signal.SIGINT) -> None:
        self.left, self.number = tick, number

    def on_collect_end(self, state: TrainerState, env_steps: int) -> None:
        self._tick()

    def on_update_end(self, state: TrainerState, terms: Any) -> None:
        self._tick()

    def _tick(self) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), self.number)
            os.kill(os.getpid(), self.number)  # as `timeout` does: to the process and to its group


@pytest.mark.parametrize("tick", range(25, 34))
def test_a_signal_between_a_step_and_its_updates_drops_no_row(
    tick: int, config: Any, tmp_path: Path
) -> None:
    options: Any = {"algo_kwargs": {"eval_interval": 5}, "log_interval": 5}
    twin = train(config(output_dir=str(tmp_path / "twin"), **options)).run_dir
    interrupted = train(config(**options), callbacks=[SignalAtTick(tick)])
    assert interrupted.stop_reason == "interrupted"
    resume(interrupted.run_dir)
    assert_same_run(twin, interrupted.run_dir)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_other_signals_save_as_ctrl_c_does(number: signal.Signals, config: Any) -> None:
    result = train(config(), callbacks=[SignalAtTick(20, number)])
    assert result.stop_reason == "interrupted"
    assert result.checkpoint_path.name.startswith("step_")


def test_a_signal_whose_error_was_swallowed_while_loading_still_ends_the_run(config: Any) -> None:
    try:
        signals.raise_on_signals()
        with suppress(BaseException):  # as a module does that is being imported
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(10)
        assert train(config()).stop_reason == "interrupted"
    finally:
        signals._handler.came = False
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)


def test_a_run_goes_on_when_nobody_reads_its_notes(
    config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after `| head`, or in a terminal that was closed."""

    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

        def flush(self) -> None:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Gone())
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    console.note("for nobody")
    quiet = config(env_id="Pendulum-v1", env_kwargs={"max_episode_steps": 5})
    assert api.train(quiet, progress_bar=True).stop_reason == "total_timesteps"


def test_an_ignored_signal_stays_ignored(config: Any) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under nohup
    try:
        result = train(config(), callbacks=[SignalAtTick(20, signal.SIGHUP)])
    finally:
        signal.signal(signal.SIGHUP, before)
    assert result.stop_reason == "total_timesteps"


def start_async(tmp_path: Path) -> subprocess.Popen[str]:
    words = (
        "train sac/pendulum num_envs=2 vector_env=async learning_starts=50 hidden_sizes=[8,8] "
        "total_timesteps=100000 checkpoint_interval=100000 eval_episodes=0 --output-dir runs"
    )
    return subprocess.Popen(
        [sys.executable, "-m", "rl_training", *words.split()],
        cwd=tmp_path, start_new_session=True, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_group_saves_a_run_with_worker_processes(
    number: signal.Signals, tmp_path: Path
) -> None:
    process = start_async(tmp_path)
    try:
        deadline = time.monotonic() + 120
        while not list(tmp_path.glob("runs/*/metrics.jsonl")):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(0.3)
        os.killpg(process.pid, number)
        output, errors = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 130, output + errors
    (run_dir,) = (tmp_path / "runs").glob("*")
    assert f"rl-training resume {run_dir.relative_to(tmp_path)}" in errors
    saved = json.loads((run_dir / "checkpoints/last/manifest.json").read_text())
    total = saved["progress"]["global_step"] + 20
    assert resume(run_dir, total_timesteps=total).stop_reason == "total_timesteps"


class Poison(Callback):
    """Makes a network of the learner useless at one update."""

    def __init__(self, network: str, update: int) -> None:
        self.network, self.update = network, update

    def on_update_end(self, state: TrainerState, terms: Any) -> None:
        if state.update_count == self.update:
            with torch.no_grad():
                next(getattr(state.algorithm, self.network).parameters()).fill_(torch.nan)


@pytest.mark.parametrize("network", ["actor", "critic"])
def test_what_is_not_finite_is_never_saved_and_the_error_names_step_and_network(
    network: str, config: Any
) -> None:
    settings = config(algo_kwargs={"eval_interval": 1_000})
    with pytest.raises(RunError, match="training diverged at step") as caught:
        train(settings, callbacks=[Poison(network, 25)])
    run_dir = run_of(settings)
    assert network in str(caught.value)
    assert f"the last good checkpoint is {run_dir}/checkpoints/step_20" in str(caught.value)
    assert not (run_dir / "checkpoints" / "step_40").exists()
    assert (run_dir / "checkpoints" / "step_20" / "replay").is_dir()
    assert resume(run_dir).stop_reason == "total_timesteps"


@pytest.fixture
def debug_level() -> Iterator[None]:
    logger = logging.getLogger("rl_training")
    before = logger.level
    logger.setLevel(logging.DEBUG)
    yield
    logger.setLevel(before)


def test_the_batch_that_diverged_is_written_when_debugging(config: Any, debug_level: None) -> None:
    settings = config(eval_episodes=0)
    with pytest.raises(RunError, match=r"critic_loss is nan.*(?s:.)*the batch: "):
        train(settings, callbacks=[Poison("critic", 25)])
    (path,) = (run_of(settings) / "debug").iterdir()
    assert path.name == "batch_of_update_26.safetensors"
    assert load_file(path)["obs"].shape == (8, 2)


def test_the_state_of_an_endless_episode_stays_bounded(
    config: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(collector, "MAX_REPEATED", 40)
    settings = config(env_id=ENDLESS, env_kwargs={}, eval_episodes=0, checkpoint_interval=30)
    run_dir = train(settings).run_dir
    sizes = {
        step: load_file(run_dir / f"checkpoints/step_{step}/state.safetensors").get(
            "envs.0.actions"
        )
        for step in (30, 60)
    }
    assert sizes[30] is not None
    assert len(sizes[30]) == 30
    assert sizes[60] is None
    with caplog.at_level(logging.WARNING):
        assert resume(run_dir, total_timesteps=80).stop_reason == "total_timesteps"
    assert "more than 40 steps" in caplog.text


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_loading_ends_the_command_with_a_line(
    number: signal.Signals, tmp_path: Path
) -> None:
    """The module of the environment stands for anything that is slow before training begins."""
    (tmp_path / "slow_env.py").write_text(
        "import pathlib, time\npathlib.Path('loading').touch()\ntime.sleep(100)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "rl_training", "train", "sac/pendulum", "env_id=slow_env:Slow"],
        cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not (tmp_path / "loading").exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, "interrupted\n")
    assert not (tmp_path / "runs").exists()
