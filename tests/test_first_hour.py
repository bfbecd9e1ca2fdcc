"""Mistakes of a first hour get a sentence that says what to write instead."""

from __future__ import annotations

import csv
import errno
import io
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import rl_training
from rl_training import BC, SAC, TD3BC, Callback, TrainConfig
from rl_training.cli import console
from rl_training.cli.main import main
from rl_training.config import CheckpointError, ConfigError, RunError
from rl_training.experiment import ExperimentManager
from rl_training.runs.reading import read_rows
from rl_training.runtime import TrainerState, TrainResult
from rl_training.runtime.loop import progress

# -- Stable-Baselines3 from memory ---------------------------------------------------------------


def test_a_policy_name_and_an_environment_are_answered_with_a_configuration() -> None:
    expected = r"SAC\(TrainConfig\(algo='sac', env_id='Pendulum-v1'"
    with pytest.raises(ConfigError, match=expected):
        SAC("MlpPolicy", "Pendulum-v1", verbose=1)
    with pytest.raises(ConfigError, match=expected):
        SAC("MlpPolicy", env=gym.make("Pendulum-v1"))
    with pytest.raises(ConfigError, match="options go into its algo_kwargs"):
        SAC(TrainConfig(algo="sac", env_id="Pendulum-v1"), learning_rate=1e-3)


def test_a_budget_by_position_is_answered_with_its_name() -> None:
    algorithm = SAC(TrainConfig(algo="sac", env_id="Pendulum-v1"))
    with pytest.raises(ConfigError, match=r"learn\(total_timesteps=10000\)"):
        algorithm.learn(10_000)


# -- Python --------------------------------------------------------------------------------------


class Quiet(Callback):
    pass


@pytest.mark.parametrize(
    ("callbacks", "advice"),
    [
        ([Quiet], r"Quiet is a class; pass an instance: Quiet\(...\)"),
        (Quiet(), r"must be a list: callbacks=\[Quiet\(...\)\]"),
        ([print], "is not a rl_training.Callback"),
    ],
)
def test_what_is_no_callback_is_refused_before_anything_is_loaded(
    callbacks: Any, advice: str, small_config: Any, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=advice):
        TD3BC(small_config(output_dir=str(tmp_path / "runs"))).learn(callbacks=callbacks)
    assert not (tmp_path / "runs").exists()


def test_load_takes_a_checkpoint_of_any_algorithm(small_config: Any) -> None:
    result = TD3BC(small_config()).learn()
    loaded = rl_training.load(result.run_dir)
    assert type(loaded) is TD3BC
    obs = np.zeros(loaded._policy.spec.obs_dim)
    assert np.array_equal(loaded.predict(obs), TD3BC.load(result.run_dir).predict(obs))
    with pytest.raises(CheckpointError, match=r"rl_training.load\(path\) takes any"):
        SAC.load(result.run_dir)


# -- the command line ----------------------------------------------------------------------------


def test_a_directory_of_runs_stands_for_its_newest_run(
    small_config: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    older, newer = (TD3BC(small_config(seed=seed)).learn() for seed in (1, 2))
    parent = older.run_dir.parent
    actions = []
    for path in (older.run_dir, newer.run_dir, parent):
        assert main(["predict", str(path), "--obs", "[0.5, 0.1, 0.2]"]) == 0
        captured = capsys.readouterr()
        actions.append(captured.out)
    assert actions[2] == actions[1] != actions[0]
    assert f"{parent} has 2 runs; taking the newest, {newer.run_dir}" in captured.err
    assert main(["resume", str(parent), "--total-timesteps", "50", "--quiet"]) == 0
    assert (newer.run_dir / "checkpoints" / "step_50").exists()
    assert rl_training.load(parent).config.seed == 2
    assert f"has no runs in it; {parent} has" in refused(capsys, f"eval {parent.parent}")
    advice = "train it first: rl-training train td3_bc/pendulum"
    assert advice in refused(capsys, "eval td3_bc/pendulum")


def refused(capsys: pytest.CaptureFixture[str], words: str, code: int = 2) -> str:
    capsys.readouterr()
    assert main(words.split()) == code
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("config sac/pendulum dataset_kind=npz", "is for datasets, but sac collects its own data"),
        ("train iql dataset_path=x.npz", "is an algorithm, not a configuration; its packaged"),
        ("train td3_bc/pendulum dataset_path=", "write dataset_path=VALUE, or dataset_path=null"),
        ("train td3_bc/pendulum dataset_path=log.npz", "write dataset_kind=npz, too"),
        ("train td3_bc/pendulum --tau 0.1", "written key=value: tau=0.1"),
        ("train td3_bc/pendulum --dataset-path=x.npz", "written key=value: dataset_path=x.npz"),
        ("train td3_bc/pendulum --output x", "Possible options: --output-dir"),
        ("train td3_bc/pendulum device=gpu", "'gpu' is not usable here; write cpu, cuda"),
        ("train td3_bc/pendulum --seeds 1,2 seed=3", "leave out --seeds 1,2 or seed=3"),
        ("train tau=0.1 td3_bc/pendulum", "the configuration comes first, then key=value"),
        ("td3_bc/pendulum train", "the verb comes first: rl-training train td3_bc/pendulum"),
        ("trian td3_bc/pendulum", "Did you mean 'train'? (see rl-training --help)"),
        ("train", "Missing argument 'config'. (see rl-training train --help)"),
        ("train td3_bc/pendulum tau = 0.1", "write key=value, without spaces"),
        ("train td3_bc/pendulum hidden_sizes=[64, 64]", "quote a value with spaces"),
        ("train td3_bc/pendulum hidden_sizes=64,64", "got the text '64,64'; write [64, 64]"),
        ("train td3_bc/pendulum batch_size=1,000", "got the text '1,000'; write 1_000"),
        ("train td3_bc/pendulum tau=0,5", "got the text '0,5'; write 0.5"),
    ],
)
def test_misplaced_options_are_answered_with_what_to_write(
    words: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = refused(capsys, words)
    assert sentence in text
    assert text.startswith("error: ")
    assert text.count("\n") == 1


def test_what_is_no_configuration_file_is_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("log.npz", obs=np.arange(9.0))
    Path("tab.yaml").write_text("algo: bc\nalgo_kwargs:\n\ttau: 0.1\n")
    advice = "give a log to one: iql/own-log dataset_kind=npz dataset_path=log.npz"
    assert advice in refused(capsys, "train log.npz")
    assert ". is a directory; name a configuration file" in refused(capsys, "train .")
    assert "line 3, column 1: a tab; indent with spaces" in refused(capsys, "train tab.yaml")


class GoneReader(io.StringIO):
    """A pipe whose reader has ended, as that of `rl-training list | head -1`."""

    def write(self, text: str) -> int:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")


def test_a_reader_that_has_gone_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", GoneReader())
    assert main(["list"]) == 0


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    text = refused(capsys, "train td3_bc/pendulum device=cuda")
    assert "device: 'cuda' needs a GPU that PyTorch can use, and it sees none" in text
    assert "write device=cpu or auto" in text


def test_options_at_the_top_level_are_told_where_they_belong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "own.yaml"
    path.write_text("algo: td3_bc\ntau: 0.1\nwrappers: {}\nbuffer_size: 5\ntaau: 1\n")
    text = refused(capsys, f"config {path}")
    assert "tau: belongs under algo_kwargs: algo_kwargs: {tau: 0.1}" in text
    assert "wrappers: belongs under env_kwargs" in text
    assert "buffer_size: belongs under algo_kwargs: algo_kwargs: {buffer_capacity: 5}" in text
    assert "taau: unknown key" in text


@pytest.mark.parametrize("algo", [["bc"], 3, None, {"bc": 1}])
def test_an_algorithm_that_is_no_name_is_refused_beside_misplaced_options(algo: Any) -> None:
    with pytest.raises(ConfigError, match="algo: "):
        TrainConfig(algo=algo, tau=0.1)


def test_a_replay_buffer_beyond_the_memory_is_refused_before_it_is_allocated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = f"train sac/pendulum total_timesteps=2000 output_dir={tmp_path / 'runs'}"
    text = refused(capsys, f"{words} buffer_capacity=900000000")
    assert "900,000,000 rows of 53 bytes are 47.7 GB" in text
    assert "lower it (this run fills 2,000)" in text
    monkeypatch.setattr("rl_training.data.memory.available_memory", lambda: 5300)
    assert "lower it (100 fit)" in refused(capsys, words)
    assert not (tmp_path / "runs").exists()


def test_a_resume_does_not_go_back(small_config: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = TD3BC(small_config()).learn().run_dir
    text = refused(capsys, f"resume {run_dir} --total-timesteps 20")
    assert "is at step 40 already, beyond 20: pass a larger total_timesteps" in text


# -- environments --------------------------------------------------------------------------------


class Still(gym.Env[Any, Any]):
    observation_space = gym.spaces.Box(-1, 1, (3,))
    action_space = gym.spaces.Box(-1, 1, (1,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(3, np.float32), 0.0, False, False, {}


class OldStep(Still):
    def step(self, action: Any) -> Any:
        return np.zeros(3, np.float32), 0.0, False, {}


class OldReset(Still):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(3, np.float32)


class OldSeed(Still):
    def reset(self) -> Any:  # type: ignore[override]
        return np.zeros(3, np.float32), {}


class WideReset(Still):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(4, np.float32), {}


class WideStep(Still):
    def step(self, action: Any) -> Any:
        return np.zeros(4, np.float32), 0.0, False, False, {}


class LateColumn(Still):
    def step(self, action: Any) -> Any:
        return np.zeros((3, 1), np.float32), 0.0, False, False, {}


class ListReward(Still):
    def step(self, action: Any) -> Any:
        return np.zeros(3, np.float32), np.zeros(1), False, False, {}


class OwnMistake(Still):
    def step(self, action: Any) -> Any:
        a, b, c, d, e = (1, 2, 3, 4)  # type: ignore[misc]
        return a, b, c, d, e


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("num_envs", [1, 2])
@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        (
            OldStep,
            "step() returned 4 values, as in Gym before 0.26; return obs, reward, terminated",
        ),
        (OldReset, "reset() must return obs and info"),
        (OldSeed, "reset() must take a seed: def reset(self, *, seed=None, options=None)"),
        (WideReset, "shape (4,), but observation_space has shape (3,): change one of them"),
        (WideStep, "failed: step() returned an observation of shape (4,), but observation_space"),
        (
            LateColumn,
            "failed: step() returned an observation of shape (3, 1), but observation_space",
        ),
        (ListReward, "failed: step() returned the reward array([0.]), which must be one number"),
        (OwnMistake, "ValueError: not enough values to unpack"),
    ],
)
def test_an_environment_of_another_interface_is_told_what_to_change(
    env: type[gym.Env[Any, Any]], sentence: str, num_envs: int, small_config: Any
) -> None:
    gym.register(id="Newcomer-v0", entry_point=env, max_episode_steps=20)
    try:
        with pytest.raises(RunError) as raised:
            SAC(small_config("sac", env_id="Newcomer-v0", num_envs=num_envs)).learn()
    finally:
        del gym.registry["Newcomer-v0"]
    assert sentence in str(raised.value)


# -- metrics and progress ------------------------------------------------------------------------


class Logs(Callback):
    def on_update_end(self, state: TrainerState, terms: Any) -> None:
        if state.update_count % 10 == 0:
            state.log({"updates_seen": state.update_count, "my/half": torch.tensor(0.5)})


def test_metrics_of_a_callback_reach_every_file(pendulum_config: Any) -> None:
    pytest.importorskip("tensorboard")
    result = TD3BC(pendulum_config(algo_kwargs={"tensorboard": True})).learn(callbacks=[Logs()])
    rows = [row for row in read_rows(result.run_dir / "metrics.jsonl") if "my/half" in row]
    assert [row["step"] for row in rows] == [10, 20, 30, 40]
    assert result.metrics["user/updates_seen"] == 40
    with (result.run_dir / "progress.csv").open() as file:
        lines = {int(line["step"]): line for line in csv.DictReader(file)}
    assert lines[20]["my/half"] == "0.5"
    events = b"".join(path.read_bytes() for path in (result.run_dir / "tensorboard").iterdir())
    assert b"my/half" in events


def test_a_callback_logs_numbers_only() -> None:
    with pytest.raises(TypeError, match="'loss' must be one number"):
        TrainerState(None).log({"loss": "high"})
    with pytest.raises(TypeError, match="name of a metric must be text, got 1"):
        TrainerState(None).log({1: 2.0})  # type: ignore[dict-item]


class Hoards(Callback):
    def state_dict(self) -> dict[str, Any]:
        return {"seen": np.zeros(2)}


def test_memory_that_a_checkpoint_cannot_hold_names_its_callback(small_config: Any) -> None:
    with pytest.raises(RunError, match=r"callback Hoards must give values that JSON can hold"):
        BC(small_config("bc")).learn(callbacks=[Hoards()])


def test_progress_has_one_line_per_step(pendulum_config: Any) -> None:
    config = pendulum_config(log_interval=5)  # evaluated at 15, 30 and 40
    algorithm = TD3BC(config)
    algorithm.learn(total_timesteps=30)
    result = algorithm.learn(total_timesteps=40)
    whole = TD3BC(config).learn()
    for run_dir in (result.run_dir, whole.run_dir):
        with (run_dir / "progress.csv").open() as file:
            lines = list(csv.DictReader(file))
        assert [int(line["step"]) for line in lines] == list(range(5, 41, 5))
        both = [line for line in lines if line["eval/return_mean"] and line["train/critic_loss"]]
        assert [int(line["step"]) for line in both] == [15, 30, 40]


def test_warnings_of_gymnasium_have_colours_on_terminals_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.warns(UserWarning, match="^WARN: look here$"):
        gym.logger.warn("look here")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with pytest.warns(UserWarning, match=r"^\x1b"):
        gym.logger.warn("look here")


class Terminal(io.StringIO):
    """A terminal of so many columns."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("columns", [50, 80])
def test_the_bar_is_one_line_and_evaluations_stay_above_it(
    columns: int, monkeypatch: pytest.MonkeyPatch, pendulum_config: Any
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "REFRESH_SECONDS", 0.0)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    result = TD3BC(pendulum_config(total_timesteps=45)).learn(progress_bar=True)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue())
    lines = [line.rstrip() for line in re.split(r"[\r\n]+", text)]
    assert lines[0] == f"run {result.run_dir}"
    scores = [line for line in lines if line.startswith("td3_bc") and "±" in line]
    assert [line.split()[1] for line in scores] == ["15/45", "30/45", "45/45"]
    bars = [line for line in lines if "updates/s" in line]
    assert bars
    assert all(len(line) <= columns for line in bars)
    assert any("return" in line for line in bars)


def test_a_bar_leaves_out_what_does_not_fit() -> None:
    parts = ["10/100", "return -1234.5", "123 updates/s", "12 s left"]
    assert progress.fit(parts, 60) == "10/100  return -1234.5  123 updates/s  12 s left"
    assert progress.fit(parts, 40) == "10/100  return -1234.5  123 updates/s"
    assert progress.fit(parts, 34) == "10/100  return -1234.5  12 s left"
    assert progress.fit(parts, 4) == "10/1"


def test_final_metrics_are_aligned_and_in_a_fixed_order(
    capsys: pytest.CaptureFixture[str],
) -> None:
    console.say_metrics(
        {"train/b": 1.0, "time/x": 2.0, "my/c": 3.0, "eval/length_mean": 4.0, "train/a": 5.0}
        | {"eval/return_mean": -1234.5}
    )
    assert capsys.readouterr().out.splitlines() == [
        "eval/return_mean  -1234.5",
        "eval/length_mean  4",
        "my/c              3",
        "train/a           5",
        "train/b           1",
        "time/x            2",
    ]


def test_a_summary_over_seeds_is_that_of_a_sample() -> None:
    results = [TrainResult(Path(), Path(), {"eval/return_mean": value}) for value in (1.0, 4.0)]
    summary = ExperimentManager.summary(results)
    assert summary == {"eval/return_mean": (2.5, pytest.approx(4.5**0.5))}
    assert ExperimentManager.summary(results[:1]) == {"eval/return_mean": (1.0, None)}


# -- Ctrl-C --------------------------------------------------------------------------------------


def test_a_second_signal_ends_a_command_inside_one_long_call() -> None:
    """Python handles a signal only after a call into C has returned; this one takes minutes."""
    code = (
        "import hashlib, threading; from rl_training.cli import signals; signals.raise_on_signals();"
        "threading.Timer(0.3, print, ['ready'], {'flush': True}).start();"  # from inside the call
        "hashlib.pbkdf2_hmac('sha256', b'a', b'b', 2**31 - 1)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)  # as `timeout` does, which counts as one
    time.sleep(1.0)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=30)
    assert process.returncode == 130
    assert error == "interrupted\n"
