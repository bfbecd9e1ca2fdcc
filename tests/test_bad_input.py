"""Every kind of bad input: one or two lines on stderr, exit code 2, nothing left behind."""

from __future__ import annotations

import io
import json
import pickle
import shutil
import zipfile
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from rl_training.cli.main import main
from rl_training.runtime import train
from rl_training.runtime.checkpoints.manifest import sealed
from tests.support.data import make_fields


class ImageEnv(gym.Env[Any, Any]):
    observation_space = gym.spaces.Box(0, 255, (8, 8, 3), np.uint8)
    action_space = gym.spaces.Box(-1, 1, (1,))


class Payload:
    """Would create a file if it were ever unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(**changes: Any) -> None:
    fields = {**make_fields(), **changes}
    np.savez("log.npz", **{key: value for key, value in fields.items() if value is not None})


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The error of a command that must fail as a user's mistake and leave nothing behind."""
    before = set(Path().rglob("*"))
    code = main(list(words))
    captured = capsys.readouterr()
    assert code == 2, captured.err
    errors = [
        line for line in captured.err.splitlines() if not line.startswith(("note:", "warning:"))
    ]
    assert 1 <= len(errors) <= 2, captured.err
    assert errors[0].startswith("error: ")
    assert "Traceback" not in captured.err
    assert set(Path().rglob("*")) == before
    return "\n".join(errors)


def from_log(
    *overrides: str, path: str = "log.npz", kind: str = "npz", env_id: str = "null"
) -> list[str]:
    data = [f"env_id={env_id}", f"dataset_kind={kind}", f"dataset_path={path}"]
    return ["train", "td3_bc/pendulum", *data, "total_timesteps=2", *overrides]


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("learning_rte=1", "did you mean 'learning_rate'?"),
        ("frobnicate=1", "frobnicate: unknown key"),
        ("learning_rate=fast", "expected a number"),
        ("gamma=1.5", "must be <= 1"),
        ("seed=-1", "must be >= 0"),
        ("device=cuda:9", "device: 'cuda:9' needs a GPU that PyTorch can use"),
        ("device=quantum", "device"),
        ("env_id=Pendulm-v1", "Pendulum-v1"),
        ("env_id=Pendulum-v9", "Pendulum-v1"),
        ("env_id=no_such_module:Env-v0", "no_such_module"),
        ("env_kwargs.gravity=3", "gravity"),
        ("dataset_id=pendulum/mixt-v0", "pendulum/mixed-v0"),
        ("algo=td3-bc", "did you mean 'td3_bc'?"),
        ("output_dir=/dev/null/runs", "/dev/null"),
        ("total_timesteps", "key=value"),
        ("seed.part=1", "has no parts"),
    ],
)
def test_bad_option(override: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert expected in refused(capsys, "train", "td3_bc/pendulum", override)


def test_missing_config_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert "no such configuration file" in refused(capsys, "train", "nowhere.yaml")


def test_unwritable_output_directory(capsys: pytest.CaptureFixture[str]) -> None:
    Path("file").write_text("")
    error = refused(capsys, "train", "bc/pendulum", "--output-dir", "file/runs")
    assert "file, not a directory" in error


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"rewards": None}, "no 'rewards'"),
        ({"terminations": None, "truncations": None}, "no 'terminations'"),
        ({"rewards": np.zeros(399, np.float32)}, "399"),
        ({"next_obs": np.zeros((400, 4), np.float32)}, "next_obs"),
        ({"obs": np.zeros((400, 8, 8, 3), np.uint8)}, "image observations"),
        ({"rewards": np.r_[np.zeros(17), np.nan, np.zeros(382)]}, "row 17"),
        ({"actions": np.full((400, 2), np.inf)}, "row 0"),
        ({"terminations": np.full(400, 2)}, "terminations"),
        ({"actions": np.zeros(400, np.int64)}, "td3_bc needs continuous actions"),
        ({"obs": np.array(["a"] * 400)}, "obs"),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else value,
)
def test_bad_data(changes: Any, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    write(**changes)
    error = refused(capsys, *from_log())
    assert expected in error
    assert "log.npz" in error


def test_missing_file_suggests_a_near_one(capsys: pytest.CaptureFixture[str]) -> None:
    write()
    assert "did you mean 'log.npz'?" in refused(capsys, *from_log(path="lok.npz"))


@pytest.mark.parametrize("keep", [0, 10, 200, 5000])
def test_truncated_file(keep: int, capsys: pytest.CaptureFixture[str]) -> None:
    write()
    Path("log.npz").write_bytes(Path("log.npz").read_bytes()[:keep])
    assert "log.npz" in refused(capsys, *from_log())


@pytest.mark.parametrize("kind", ["npz", "pt", "hdf5"])
def test_not_a_file_of_that_kind(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("log").write_text("this is text, not data\n" * 100)
    assert "log" in refused(capsys, *from_log(kind=kind, path="log"))


def test_damaged_member(capsys: pytest.CaptureFixture[str]) -> None:
    write()
    content = bytearray(Path("log.npz").read_bytes())
    content[2000:2100] = bytes(100)
    Path("log.npz").write_bytes(content)
    assert "log.npz" in refused(capsys, *from_log())


def test_pickle_in_npz_is_refused_and_not_executed(capsys: pytest.CaptureFixture[str]) -> None:
    fields = make_fields()
    payload = np.empty(400, object)
    payload[:] = Payload(Path("owned").absolute())
    with zipfile.ZipFile("log.npz", "w") as archive:
        for name, value in {**fields, "rewards": payload}.items():
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, value, allow_pickle=True)
            archive.writestr(f"{name}.npy", buffer.getvalue())
    assert "rewards" in refused(capsys, *from_log())
    assert not Path("owned").exists()


def test_pickle_in_pt_is_refused_and_not_executed(capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({"obs": Payload(Path("owned").absolute())}, "log.pt")
    refused(capsys, *from_log(kind="pt", path="log.pt"))
    Path("bare.pt").write_bytes(pickle.dumps(Payload(Path("owned").absolute())))
    refused(capsys, *from_log(kind="pt", path="bare.pt"))
    assert not Path("owned").exists()


def test_widths_that_do_not_fit_the_environment(capsys: pytest.CaptureFixture[str]) -> None:
    write(obs=np.zeros((400, 5), np.float32), next_obs=np.zeros((400, 5), np.float32))
    error = refused(capsys, *from_log(env_id="Pendulum-v1"))
    assert "width 5" in error
    assert "Pendulum-v1 has 3" in error


def test_actions_outside_the_bounds_name_the_row(capsys: pytest.CaptureFixture[str]) -> None:
    actions = np.zeros((400, 1), np.float32)
    actions[33] = 2.5
    write(actions=actions)
    error = refused(capsys, *from_log(env_id="Pendulum-v1"))
    assert "row 33" in error
    assert "clip_actions" in error
    assert main(from_log("clip_actions=true", "eval_episodes=0", "-q", env_id="Pendulum-v1")) == 0


def test_discrete_environment_for_td3_bc(capsys: pytest.CaptureFixture[str]) -> None:
    error = refused(capsys, "train", "td3_bc/pendulum", "env_id=CartPole-v1", "dataset_kind=random")
    assert "td3_bc needs continuous actions" in error
    assert "CartPole-v1 are discrete" in error


def test_image_environment(capsys: pytest.CaptureFixture[str]) -> None:
    gym.register("TestImage-v0", ImageEnv)
    try:
        error = refused(capsys, "train", "bc/pendulum", "env_id=TestImage-v0")
    finally:
        gym.registry.pop("TestImage-v0")
    assert "image observations" in error
    assert "Box" in error


def test_no_dataset_at_all(capsys: pytest.CaptureFixture[str]) -> None:
    Path("bare.yaml").write_text("algo: bc\nenv_id: Pendulum-v1\n")
    assert "dataset_kind: is required" in refused(capsys, "train", "bare.yaml")


@pytest.fixture
def run_dir(small_config: Any) -> Path:
    return train(small_config()).run_dir


def test_checkpoint_of_another_algorithm(run_dir: Path) -> None:
    from rl_training import BC
    from rl_training.config import CheckpointError

    with pytest.raises(CheckpointError, match="checkpoint of 'td3_bc', not of 'bc'"):
        BC.load(run_dir)


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (
            lambda p: (p / "model.safetensors").write_bytes(b"garbage"),
            "does not match its checksum",
        ),
        (lambda p: (p / "optimizer.safetensors").unlink(), "is missing"),
        (lambda p: (p / "manifest.json").write_text('{"schema": 1'), "not JSON"),
        (lambda p: (p / "manifest.json").write_text("{}"), "incomplete"),
        (lambda p: (p / "manifest.json").unlink(), "manifest.json"),
    ],
    ids=["tensors", "missing", "cut-manifest", "empty-manifest", "no-manifest"],
)
def test_damaged_checkpoint_says_so_and_the_previous_one_loads(
    damage: Any, expected: str, run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(run_dir / "checkpoints" / "step_40")
    error = refused(
        capsys, "resume", str(run_dir / "checkpoints" / "step_40"), "--total-timesteps", "50"
    )
    assert expected in error
    previous = run_dir / "checkpoints" / "step_30"
    assert main(["predict", str(previous), "--obs", "[0, 0, 0]"]) == 0
    assert main(["resume", str(previous), "-q"]) == 0


def test_damaged_last_checkpoint_names_the_previous_one(
    run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run_dir / "checkpoints" / "step_40" / "model.safetensors").write_bytes(b"")
    error = refused(capsys, "predict", str(run_dir), "--obs", "[0, 0, 0]")
    assert "is damaged" in error
    assert "step_30" in error


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--obs", "[1, 2]"], "observations of 3 numbers"),
        (["--obs", "[1, 2, null]"], "NaN or infinite"),
        (["--obs", "hello"], "list of numbers"),
        (["--obs", "[1, 2, NaN]"], "NaN"),
        ([], "either --obs"),
        (["--input", "nowhere.npz"], "nowhere.npz"),
    ],
)
def test_bad_observation(
    words: list[str], expected: str, run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert expected in refused(capsys, "predict", str(run_dir), *words)


def test_not_a_checkpoint(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("empty").mkdir()
    assert "neither a checkpoint nor a run, and has no runs in it" in refused(
        capsys, "eval", "empty"
    )
    assert "no such file" in refused(capsys, "resume", "nowhere")
    assert "is a file" in refused(capsys, "eval", str(run_dir / "config.yaml"))


def test_policy_without_environment_needs_one_to_be_evaluated(
    run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "--env" in refused(capsys, "eval", str(run_dir))
    assert "does not fit the policy" in refused(
        capsys, "eval", str(run_dir), "--env", "CartPole-v1"
    )


def test_manifest_cannot_name_an_unknown_key(
    run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = run_dir / "checkpoints" / "step_40" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["config"]["algo_kwargs"]["colour"] = "red"
    path.write_bytes(sealed(manifest))
    assert "colour: unknown key" in refused(capsys, "resume", str(run_dir))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("files", None), ("schema", "x"), ("spec", {}), ("config", None), ("progress", 3),
        ("callbacks", None), ("dataset", []), ("algorithm", None), ("metrics_position", None),
    ],
)  # fmt: skip
def test_manifest_edited_by_hand_is_refused(
    key: str, value: Any, run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = run_dir / "checkpoints" / "step_40" / "manifest.json"
    path.write_bytes(sealed({**json.loads(path.read_text()), key: value}))
    for words in (["predict", str(run_dir), "--obs", "[0, 0, 0]"], ["resume", str(path.parent)]):
        assert "is damaged" in refused(capsys, *words)


@pytest.mark.parametrize("change", [{"action_low": [-9]}, {"obs_dim": "3"}, {"action_kind": "?"}])
def test_problem_edited_by_hand_is_refused(
    change: dict[str, Any], run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = run_dir / "checkpoints" / "step_40" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["spec"] |= change
    path.write_bytes(sealed(manifest))
    assert "'spec'" in refused(capsys, "predict", str(run_dir), "--obs", "[0, 0, 0]")


@pytest.mark.parametrize(
    "text",
    ["1: 2\n", "- a\n", "just text\n", "", "algo: bc\nalgo_kwargs: text\n",
     "algo: bc\nenv_kwargs: [1]\n", "algo: bc\nenv_id: X-v0\nenv_kwargs: &a {b: *a}\n",
     "algo: bc\n\tseed: 1\n"],
)  # fmt: skip
def test_odd_configuration_file(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("odd.yaml").write_text(text)
    refused(capsys, "train", "odd.yaml")


@pytest.mark.parametrize(
    "words",
    [
        ["device=meta"], ["torch_threads=100000"], ["batch_size=99999999999999999999"],
        ["hidden_sizes=[1000000000]"], ["hidden_sizes=[true]"], ['hidden_sizes=["64"]'],
        ["tensorboard=1"], ["env_id="], ["=3"], ["tau=1", "algo_kwargs.tau=1"],
        ["dataset_kind=[npz]"], ["output_dir=x", "--output-dir", "y"], ["--output-dir", "x" * 300],
        ["early_stopping.metric=eval/shaped_return_mean"], ["hidden_sizes=64,64"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_odd_override(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    refused(capsys, "train", "td3_bc/pendulum", *words)


@pytest.mark.parametrize("code", ["raise ValueError('no')", "def (", "import nothing_like_it"])
def test_plugin_that_fails(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("broken.py").write_text(code)
    assert "--plugin broken.py" in refused(capsys, "list", "--plugin", "broken.py")


def test_environment_that_fails_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("the motor is off\nand more lines")

    assert main(["train", "bc/pendulum", "total_timesteps=1", "eval_episodes=1"]) == 0  # has data
    monkeypatch.setattr("gymnasium.envs.classic_control.pendulum.PendulumEnv.step", fail)
    for words, kept in (
        (["train", "bc/pendulum", "total_timesteps=5"], "the run up to step 5 is saved"),
        (["train", "bc/pendulum", "dataset_kind=random"], None),
        (["data", "collect", "--env", "Pendulum-v1", "-o", "out.npz"], None),
    ):
        capsys.readouterr()
        assert main(words) == 1
        errors = capsys.readouterr().err.splitlines()
        if kept is not None:
            assert kept in errors.pop()
        assert errors[-1] == "error: Pendulum-v1 failed: RuntimeError: the motor is off"


def test_full_disk_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    Path("runs").mkdir()
    monkeypatch.setattr("rl_training.runs.metadata.write_json", full)
    assert "cannot write to" in refused(capsys, "train", "bc/pendulum", "total_timesteps=5")


def test_interrupted_write_leaves_the_old_checkpoint(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash while saving: the directory aside is ignored, `last` is what it was."""
    from rl_training.runtime import resume
    from rl_training.runtime.checkpoints import format as checkpointing

    def crash(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpointing, "write_manifest", crash)
    with pytest.raises(KeyboardInterrupt):
        resume(run_dir, total_timesteps=60)
    monkeypatch.undo()
    assert (run_dir / "checkpoints" / "last").resolve().name == "step_40"
    assert resume(run_dir, total_timesteps=60).checkpoint_path.name == "step_60"
    shutil.rmtree(run_dir)
