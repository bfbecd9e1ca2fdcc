"""Runs and checkpoints made by an attacker, with right checksums: refused in one line, or harmless."""

from __future__ import annotations

import io
import json
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save
from torch import Tensor

from rl_training import api
from rl_training.cli.main import main
from rl_training.config import CheckpointError, ConfigError, OutputError
from rl_training.files import sha256_of
from rl_training.runs.metrics import MetricsWriter
from rl_training.runtime import TrainConfig, resume, train
from rl_training.runtime.checkpoints.manifest import sealed
from rl_training.runtime.loop.divergence import BatchInspector
from rl_training.runtime.loop.state import TrainerState

VALUES: dict[str, Any] = {
    "algo": "td3", "env_id": "Pendulum-v1", "total_timesteps": 40, "eval_episodes": 1,
    "checkpoint_interval": 20, "log_interval": 30, "env_kwargs": {"max_episode_steps": 15},
    "algo_kwargs": {
        "hidden_sizes": [8, 8], "batch_size": 8, "learning_starts": 10, "eval_interval": 30,
        "tensorboard": False,
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(TrainConfig(**VALUES, output_dir=str(tmp_path_factory.mktemp("runs")))).run_dir


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "run", symlinks=True))


def reseal(run: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = run / "checkpoints" / "step_40" / "manifest.json"
    values = json.loads(path.read_text())
    change(values)
    path.write_bytes(sealed(values))


def exchange(run: Path, name: str, change: Callable[[str, Tensor], Tensor]) -> None:
    """Change the tensors of a file, and its checksum in the manifest."""
    path = run / "checkpoints" / "step_40" / name
    content = save({key: change(key, value).clone() for key, value in load_file(path).items()})
    path.write_bytes(content)
    entry = {"sha256": sha256_of(content), "bytes": len(content)}
    reseal(run, lambda manifest: manifest["files"].update({name: entry}))


# -- tensors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        lambda key, value: value[:1] if key.endswith("exp_avg") and value.ndim else value,
        lambda key, value: torch.zeros(0) if key.endswith("exp_avg_sq") else value,
        lambda key, value: value.double() if key.endswith("exp_avg") else value,
        lambda key, value: torch.ones(3) if key.endswith("step") else value,
    ],
    ids=["short", "empty", "other type", "several steps"],
)
def test_moments_that_do_not_fit_their_parameter_never_reach_fused_adam(
    change: Callable[[str, Tensor], Tensor], run: Path
) -> None:
    """It would write past the end of their memory."""
    exchange(run, "optimizer.safetensors", change)
    with pytest.raises(CheckpointError, match=r"the optimizer's '\w+' of '.*' does not fit"):
        resume(run, total_timesteps=50)


def test_networks_that_are_not_finite_are_not_loaded(run: Path) -> None:
    exchange(run, "model.safetensors", lambda key, value: value * float("nan"))
    for command in (
        lambda: api.predict(run, [1.0, 0.0, 0.0]),
        lambda: resume(run, total_timesteps=50),
    ):
        with pytest.raises(CheckpointError, match="not finite: actor, critic"):
            command()


def test_options_for_larger_networks_than_the_saved_ones_take_no_memory(run: Path) -> None:
    options = {"hidden_sizes": [60_000] * 9}
    reseal(run, lambda manifest: manifest["config"]["algo_kwargs"].update(options))
    for command in (
        lambda: api.predict(run, [1.0, 0.0, 0.0]),
        lambda: resume(run, total_timesteps=50),
    ):
        with pytest.raises(CheckpointError, match="its options ask for at least 28,800,000,0"):
            command()


def test_a_replay_larger_than_the_memory_names_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sysconf", lambda name: 2**12)  # 16 MB
    options = {**VALUES["algo_kwargs"], "buffer_capacity": 10**6}
    with pytest.raises(ConfigError, match=r"buffer_capacity: 1,000,000 rows"):
        train(TrainConfig(**{**VALUES, "algo_kwargs": options}))


# -- the manifest -------------------------------------------------------------------------------

MISSING = object()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("progress.should_stop", MISSING),
        ("progress.stop_reason", MISSING),
        ("progress.stop_reason", []),
        ("callbacks.LoggingCallback#0.sums", None),
        ("callbacks.LoggingCallback#0.sums", {"a": "b"}),
        ("callbacks.LoggingCallback#0.row_step", "x"),
        ("callbacks.EvaluationCallback#0.evaluated_at", []),
        ("callbacks.CheckpointCallback#0.best", "high"),
        ("callbacks.CheckpointCallback#0.best_step", "/../../.."),
        ("callbacks.CheckpointCallback#0.looked_at", "x"),
        ("experience.env_steps", None),
        ("experience.env_steps", 2**70),
        ("experience.updates_due", -1),
        ("experience.updates_due", 10**9),
        ("experience.total_steps", "x"),
        ("experience.envs.returns", []),
        ("experience.envs.lengths", -1),
        ("experience.envs.episodes", ["x"]),
    ],
)
def test_a_manifest_with_odd_values_is_damaged(path: str, value: Any, run: Path) -> None:
    *parents, last = path.replace("#", ".#").replace(".#", "\0").split(".")

    def change(manifest: dict[str, Any]) -> None:
        for name in parents:
            manifest = manifest[name.replace("\0", ".")]
        if value is MISSING:
            del manifest[last]
        else:
            manifest[last] = value

    reseal(run, change)
    with pytest.raises(CheckpointError, match="is damaged"):
        resume(run / "checkpoints" / "step_40", total_timesteps=50)


# -- files of the run ---------------------------------------------------------------------------


def bomb() -> bytes:
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (268435456,), }".ljust(117) + b"\n"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("steps", "returns", "lengths"):
            archive.writestr(f"{name}.npy", b"\x93NUMPY\x01\x00v\x00" + header + bytes(1 << 20))
    return buffer.getvalue()


def arrays(steps: Any, returns: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, steps=np.array(steps), returns=np.array(returns), lengths=np.array(returns))
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (bomb(), "compressed"),
        (arrays(["a"], [[1.0]]), "other types"),
        (arrays([1], [["x"]]), "other types"),
        (arrays([1], [[1.0, 2.0]]), "2 episodes per evaluation, this run 1"),
    ],
    ids=["bomb", "text as steps", "text as returns", "other episodes"],
)
def test_odd_evaluations_are_begun_anew(
    content: bytes, reason: str, run: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (run / "evaluations.npz").write_bytes(content)
    writer = MetricsWriter(run, tensorboard=False)
    writer.cut_back(10**9, 40)
    writer.write_episodes(50, np.array([3.0]), np.array([5]))
    assert reason in caplog.text
    with np.load(run / "evaluations.npz") as saved:
        assert (saved["steps"].tolist(), saved["returns"].tolist()) == ([50], [[3.0]])


@pytest.mark.parametrize(
    "row",
    ['"eval/x": "high"', '"eval/x": [1]', '"eval/x": 1' + "0" * 400, '"eval/x": null',
     '"eval/\\ud800": 1', '"eval/\\u001b[2J": 1'],
)  # fmt: skip
def test_metrics_that_are_no_numbers_are_left_out(
    row: str, run: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = run / "metrics.jsonl"
    path.write_text(f'{{"step": 1, {row}}}\n{path.read_text()}')
    assert main(["resume", str(run)]) == 0  # complete: it prints the metrics
    writer = MetricsWriter(run, tensorboard=False)
    writer.cut_back(10**9, 40)  # writes progress.csv
    assert "eval/return_mean" in writer.latest
    assert not {"eval/x", "eval/\ud800", "eval/\x1b[2J"} & writer.latest.keys()
    assert "\x1b" not in "".join(capfd.readouterr())


def test_a_row_whose_step_is_too_large_is_left_out(run: Path) -> None:
    path = run / "metrics.jsonl"
    path.write_text(f'{{"step": 1{"0" * 400}, "eval/x": 1}}\n{path.read_text()}')
    assert api.read_run(run).step == 40


def test_a_huge_file_of_metrics_is_not_read(run: Path) -> None:
    os.truncate(run / "metrics.jsonl", 2**42)
    with pytest.raises(CheckpointError, match=r"metrics\.jsonl has 4,398,046,511,104 bytes"):
        api.read_run(run)
    with pytest.raises(OutputError, match=r"metrics\.jsonl: it has 4398046511104 bytes"):
        resume(run / "checkpoints" / "step_20")  # a branch, which copies them


@pytest.mark.parametrize("make", [Path.touch, os.mkfifo], ids=["file", "fifo"])
def test_something_else_in_the_place_of_tensorboard_is_left_alone(
    make: Callable[[Path], None], run: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("tensorboard")
    make(run / "tensorboard")
    MetricsWriter(run).close()
    assert "no TensorBoard events" in caplog.text


def test_a_step_that_is_a_link_to_itself_is_replaced(run: Path) -> None:
    (run / "checkpoints" / "step_60").symlink_to("step_60")
    resume(run, total_timesteps=60)
    step = run / "checkpoints" / "step_60"
    assert step.is_dir()
    assert not step.is_symlink()
    assert not list(step.parent.glob(".*"))


def test_checkpoints_of_another_run_are_not_written_to(run: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(run, tmp_path / "other", symlinks=True))
    shutil.rmtree(run / "checkpoints")
    (run / "checkpoints").symlink_to(other / "checkpoints")
    for path in (run, run / "checkpoints" / "step_40"):
        with pytest.raises(
            CheckpointError, match=r"a link to those of another run, .*other: resume"
        ):
            resume(path, total_timesteps=50)
    assert not (other / "checkpoints" / "step_50").exists()


def test_a_batch_that_diverged_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "debug").symlink_to("elsewhere")
    inspector = BatchInspector(TrainerState(torch.nn.Linear(1, 1)), tmp_path)
    inspector.state.algorithm.update_count = 3
    with pytest.raises(OutputError, match="debug is a link, which is not followed"):
        inspector(None, {"loss": torch.tensor(float("nan"))})  # type: ignore[arg-type]
    assert not list((tmp_path / "elsewhere").iterdir())
