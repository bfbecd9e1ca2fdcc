"""The command line, in this process; what needs a process of its own is in test_resume and below."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from rl_training.cli.main import main
from rl_training.data import load_transition_dataset
from rl_training.runtime import train
from tests.support.data import make_fields

QUICK = ["total_timesteps=20", "hidden_sizes=[8]", "eval_episodes=1", "checkpoint_interval=10",
         "log_interval=10", "eval_interval=10"]  # fmt: skip


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def output(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    capsys.readouterr()
    found = main(list(words))
    captured = capsys.readouterr()
    assert found == code, captured.err
    return captured.out


def test_train_ends_with_run_checkpoint_and_metrics(capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "train", "td3_bc/pendulum", *QUICK)
    (run_dir,) = Path("runs").glob("td3_bc__Pendulum-v1__seed0__*")
    assert f"run         {run_dir}" in text
    assert "step_20" in text
    assert "eval/return_mean" in text
    assert {path.name for path in run_dir.iterdir()} >= {
        "config.yaml", "metadata.json", "metrics.jsonl", "progress.csv", "evaluations.npz",
        "checkpoints", "tensorboard",
    }  # fmt: skip
    assert {path.name for path in (run_dir / "checkpoints").iterdir()} == {
        "step_10", "step_20", "last", "best",
    }  # fmt: skip


def test_config_yaml_of_a_run_is_enough_to_run_it_again(capsys: pytest.CaptureFixture[str]) -> None:
    output(capsys, "train", "td3_bc/pendulum", *QUICK)
    (first,) = Path("runs").glob("*")
    output(capsys, "train", str(first / "config.yaml"), "--output-dir", "again")
    (second,) = Path("again").glob("*")
    for name in ("model", "optimizer", "state"):
        file = f"checkpoints/last/{name}.safetensors"
        assert (first / file).read_bytes() == (second / file).read_bytes()


def test_metadata_says_versions_command_and_data(capsys: pytest.CaptureFixture[str]) -> None:
    output(capsys, "train", "bc/pendulum", *QUICK)
    (run_dir,) = Path("runs").glob("*")
    metadata = json.loads((run_dir / "metadata.json").read_text())
    assert {"torch", "numpy", "gymnasium", "rl-training"} <= set(metadata["versions"])
    assert len(metadata["dataset"]["sha256"]) == 64
    assert metadata["argv"]


def test_several_seeds_make_several_runs_and_a_summary(capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "train", "bc/pendulum", *QUICK, "--seeds", "1,2", "--quiet")
    assert len(list(Path("runs").glob("*seed1*"))) == len(list(Path("runs").glob("*seed2*"))) == 1
    assert "over 2 seeds  eval/return_mean" in text
    output(capsys, "train", "bc/pendulum", "--seeds", "1,x", code=2)
    output(capsys, "train", "bc/pendulum", "--seeds", "1,1", code=2)


def test_training_from_a_log_needs_no_environment(capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("log.npz", **make_fields(action_dim=2))
    capsys.readouterr()
    words = ["env_id=null", "dataset_kind=npz", "dataset_path=log.npz", *QUICK]
    assert main(["train", "td3_bc/pendulum", *words]) == 0
    captured = capsys.readouterr()
    assert "action bounds from the data's range" in captured.err
    assert "not evaluated" in captured.err
    assert "eval/" not in captured.out
    (run_dir,) = Path("runs").glob("td3_bc__logs__seed0__*")
    action = json.loads(output(capsys, "predict", str(run_dir), "--obs", "[0, 0, 0]"))
    low, high = make_fields()["actions"].min(0), make_fields()["actions"].max(0)
    assert np.all((action >= low) & (action <= high))
    assert not (run_dir / "checkpoints" / "best").exists()


def test_action_bounds_may_be_given_with_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("log.npz", **make_fields())
    words = ["env_id=null", "dataset_kind=npz", "dataset_path=log.npz", "action_low=-3",
             "action_high=[3, 4]", *QUICK]  # fmt: skip
    output(capsys, "train", "bc/pendulum", *words)
    (run_dir,) = Path("runs").glob("*")
    manifest = json.loads((run_dir / "checkpoints/last/manifest.json").read_text())
    assert manifest["spec"]["action_low"] == [-3, -3]
    assert manifest["spec"]["action_high"] == [3, 4]


@pytest.fixture
def run_dir(pendulum_config: Any) -> str:
    return str(train(pendulum_config()).run_dir)


def test_predict_prints_an_action_within_bounds(
    run_dir: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (action,) = json.loads(output(capsys, "predict", run_dir, "--obs", "[1, 0, 0]"))
    assert -2 <= action <= 2
    two = json.loads(output(capsys, "predict", run_dir, "--obs", "[[1, 0, 0], [0, 1, 0]]"))
    assert np.shape(two) == (2, 1)
    assert two[0][0] == pytest.approx(action, abs=1e-6)


def test_predict_reads_a_log_and_writes_actions(
    run_dir: str, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez("log.npz", observations=np.zeros((5, 3)))
    assert "5 actions" in output(
        capsys, "predict", run_dir, "--input", "log.npz", "--output", "a.npz"
    )
    with np.load("a.npz") as saved:
        assert saved["actions"].shape == (5, 1)


def test_eval_reports_the_raw_return(run_dir: str, capsys: pytest.CaptureFixture[str]) -> None:
    metrics = json.loads(output(capsys, "eval", run_dir, "--episodes", "3", "--json"))
    assert metrics["eval/length_mean"] == 30
    again = json.loads(output(capsys, "eval", run_dir, "--episodes", "3", "--json"))
    assert metrics == again
    other = json.loads(output(capsys, "eval", run_dir, "--episodes", "3", "--json", "--seed", "9"))
    assert other != metrics
    output(capsys, "eval", run_dir, "--episodes", "0", code=2)


def test_eval_records_video(run_dir: str, capsys: pytest.CaptureFixture[str]) -> None:
    output(capsys, "eval", run_dir, "--episodes", "1", "--video")
    assert list(Path(run_dir).rglob("*.mp4"))


def test_resume_of_a_complete_run_says_so(run_dir: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["resume", run_dir]) == 0
    assert "is complete" in capsys.readouterr().err
    assert main(["resume", run_dir, "--total-timesteps", "50"]) == 0


def test_config_prints_every_default(capsys: pytest.CaptureFixture[str]) -> None:
    values = yaml.safe_load(output(capsys, "config", "td3_bc/pendulum", "tau=0.5"))
    assert values["algo_kwargs"]["tau"] == 0.5
    assert values["algo_kwargs"]["bc_alpha"] == 2.5
    Path("whole.yaml").write_text(output(capsys, "config", "td3_bc/pendulum"))
    assert yaml.safe_load(output(capsys, "config", "whole.yaml")) == yaml.safe_load(
        output(capsys, "config", "td3_bc/pendulum")
    )


def test_explain_and_list_and_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    assert "2.5" in output(capsys, "explain", "td3_bc.bc_alpha")
    assert "passes over the dataset" in output(capsys, "explain", "max_epochs")
    assert "early_stopping.patience" in output(capsys, "explain", "early_stopping")
    assert "bc_alpha" in output(capsys, "explain", "td3_bc")
    assert "seed of every random stream" in output(capsys, "explain", "seed")
    assert "before stopping" in output(capsys, "explain", "early_stopping.patience")
    assert "horizon" in output(capsys, "explain", "learning_rate_schedule.final")
    output(capsys, "explain", "bc_alhpa", code=2)
    listed = output(capsys, "list")
    assert "td3_bc/pendulum" in listed
    assert "pendulum/mixed-v0" in listed
    assert "all is well" in output(capsys, "doctor")


def test_version_and_usage_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert output(capsys, "--version").startswith("rl-training ")
    assert main(["trian"]) == 2
    assert main(["train"]) == 2
    assert main(["train", "bc/pendulum", "--colour"]) == 2


def test_debug_shows_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "bc/pendulum", "gama=1", "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_data_info_and_check(capsys: pytest.CaptureFixture[str]) -> None:
    fields = make_fields()
    np.savez("log.npz", **fields)
    described = json.loads(output(capsys, "data", "info", "log.npz", "--json"))
    assert described["transitions"] == 400
    assert described["episodes"] == 20
    assert "episodes             20" in output(capsys, "data", "info", "log.npz")
    assert "ok" in output(capsys, "data", "check", "builtin:pendulum/mixed-v0")
    fields["rewards"][5] = np.nan
    np.savez("bad.npz", **fields)
    text = output(capsys, "data", "check", "bad.npz", code=1)
    assert "row 5" in text
    assert "fix:" in text
    output(capsys, "data", "check", "nowhere.npz", code=2)
    output(capsys, "data", "info", "log.csv", code=2)


@pytest.mark.parametrize("target", ["out.npz", "out.pt", "out.hdf5"])
def test_data_convert(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("log.npz", **make_fields())
    words = ["--with-next-actions", "--scale-actions", "2", "--reward-scale", "0.5"]
    output(capsys, "data", "convert", "log.npz", target, *words)
    kind = {"npz": "npz", "pt": "pt", "hdf5": "hdf5"}[target.split(".")[1]]
    converted = load_transition_dataset(kind, dataset_path=target)
    original = load_transition_dataset("npz", dataset_path="log.npz")
    np.testing.assert_allclose(converted.actions, original.actions * 2, rtol=1e-6)
    np.testing.assert_allclose(converted.rewards, original.rewards * 0.5, rtol=1e-6)
    assert np.array_equal(converted.terminations, original.terminations)
    assert np.array_equal(converted.truncations, original.truncations)
    assert converted.next_actions is not None
    output(capsys, "data", "convert", "log.npz", target, code=2)  # exists
    output(capsys, "data", "convert", "log.npz", target, "--overwrite")


def test_data_collect_random_and_with_a_policy(
    run_dir: str, capsys: pytest.CaptureFixture[str]
) -> None:
    output(capsys, "data", "collect", "--env", "Pendulum-v1", "--steps", "250", "-o", "random.npz")
    random = load_transition_dataset("npz", dataset_path="random.npz")
    assert random.truncations.nonzero().flatten().tolist() == [199, 249]
    assert random.terminations.sum() == 0
    words = ["--checkpoint", run_dir, "--steps", "70", "--noise", "0.1", "-o", "policy.npz"]
    output(capsys, "data", "collect", *words)
    policy = load_transition_dataset("npz", dataset_path="policy.npz")
    assert policy.truncations.nonzero().flatten().tolist() == [29, 59, 69]
    assert policy.actions.abs().max() <= 2
    output(capsys, "data", "collect", "-o", "x.npz", code=2)


@pytest.mark.parametrize(
    "code", ["import rl_training", "from rl_training.cli.main import main; main(['--help'])"]
)
def test_start_up_does_not_import_torch(code: str) -> None:
    script = f"{code}\nimport sys\nassert 'torch' not in sys.modules\nassert 'gymnasium' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)


def test_module_and_script_are_the_same_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rl_training", "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("rl-training ")


def test_data_check_compares_a_log_with_an_environment(capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("log.npz", **make_fields(obs_dim=3, action_dim=1))
    output(capsys, "data", "check", "log.npz", "--env", "Pendulum-v1", code=1)  # actions in [-1, 1]
    np.savez("wide.npz", **make_fields(obs_dim=4, action_dim=2))
    text = output(capsys, "data", "check", "wide.npz", "--env", "Pendulum-v1", code=1)
    assert "error: observation-width" in text
    assert "error: action-width" in text
    text = output(capsys, "data", "check", "wide.npz", "--env", "CartPole-v1", code=1)
    assert "error: action-kind" in text
    assert "observation-width" not in text


@pytest.mark.parametrize(
    "words",
    [
        ["--reward-scale", "nan"],
        ["--reward-scale", "1e39"],
        ["--reward-shift", "inf"],
        ["--scale-actions", "inf"],
        ["--scale-actions", "nan"],
        ["--scale-actions", "1e39"],
        ["--scale-actions", "1e-320"],
        ["--scale-actions", "-1"],
    ],
)
def test_data_convert_refuses_numbers_that_ruin_the_file(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez("log.npz", **make_fields())
    capsys.readouterr()
    assert main(["data", "convert", "log.npz", "out.npz", *words]) == 2
    assert words[0] in capsys.readouterr().err
    assert not Path("out.npz").exists()


def test_data_convert_refuses_rewards_that_overflow(capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("log.npz", **{**make_fields(), "rewards": np.full(400, 1e6)})
    capsys.readouterr()
    assert main(["data", "convert", "log.npz", "out.npz", "--reward-scale", "1e35"]) == 2
    assert "'rewards' would have inf at row 0" in capsys.readouterr().err
    assert not Path("out.npz").exists()


def test_data_convert_cannot_clip_to_the_bounds_of_choices(
    capsys: pytest.CaptureFixture[str],
) -> None:
    np.savez("log.npz", **make_fields())
    capsys.readouterr()
    words = ["data", "convert", "log.npz", "out.npz", "--clip-actions", "--env", "CartPole-v1"]
    assert main(words) == 2
    assert "CartPole-v1 has discrete actions" in capsys.readouterr().err


def test_data_collect_refuses_a_negative_seed_and_endless_noise(
    run_dir: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["data", "collect", "--env", "Pendulum-v1", "--steps", "5", "-o", "x.npz"]
    output(capsys, *words, "--seed", "-1", code=2)
    output(capsys, *words, "--checkpoint", run_dir, "--noise", "nan", code=2)
    assert not Path("x.npz").exists()


def test_predict_does_not_replace_a_file_unasked(
    run_dir: str, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez("log.npz", obs=np.zeros((5, 3)))
    words = ["predict", run_dir, "--input", "log.npz", "--output"]
    output(capsys, *words, "new/place/a.npz")
    before = Path("new/place/a.npz").read_bytes()
    output(capsys, *words, "new/place/a.npz", code=2)
    assert Path("new/place/a.npz").read_bytes() == before
    output(capsys, *words, "new/place/a.npz", "--overwrite")
    assert [path.name for path in Path("new/place").iterdir()] == ["a.npz"]


def test_predict_never_writes_over_its_input(
    run_dir: str, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez("log.npz", obs=np.zeros((5, 3)))
    Path("other.npz").symlink_to("log.npz")
    before = Path("log.npz").read_bytes()
    for name in ("log.npz", "./log.npz", "other.npz"):
        words = ["predict", run_dir, "--input", "log.npz", "--output", name, "--overwrite"]
        capsys.readouterr()
        assert main(words) == 2
        assert "is the --input" in capsys.readouterr().err
    assert Path("log.npz").read_bytes() == before


def test_predict_says_that_a_place_cannot_be_written(
    run_dir: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    capsys.readouterr()
    assert main(["predict", run_dir, "--obs", "[0, 0, 0]", "--output", "a.npz"]) == 2
    assert "cannot write a.npz: No space left on device" in capsys.readouterr().err
    assert list(Path().glob("*.npz")) + list(Path().glob(".*.tmp")) == []
    assert main(["predict", run_dir, "--obs", "[0, 0, 0]", "--output", "/dev/null/a.npz"]) == 2


def test_predict_takes_named_datasets_and_training_shapes(
    run_dir: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["predict", run_dir, "--output", "a.npz", "--overwrite", "--input"]
    assert "20000 actions" in output(capsys, *words, "builtin:pendulum/expert-v0")
    np.savez("log.npz", obs=np.zeros((4, 1, 3)))
    assert "4 actions" in output(capsys, *words, "log.npz")


def test_predict_names_the_row_that_is_not_a_number(
    run_dir: str, capsys: pytest.CaptureFixture[str]
) -> None:
    obs = np.zeros((5, 3))
    obs[3, 1] = np.nan
    np.savez("log.npz", obs=obs)
    capsys.readouterr()
    assert main(["predict", run_dir, "--input", "log.npz"]) == 2
    assert "log.npz: 'obs' has nan at row 3" in capsys.readouterr().err
