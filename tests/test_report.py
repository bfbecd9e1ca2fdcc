"""Reports say what run directories hold, and nothing that they do not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_training.cli.main import main
from rl_training.experiment import read_run
from rl_training.runtime import train
from tests.support.runs import killed_run
from tests.support.scored_runs import make_run


def output(capsys: pytest.CaptureFixture[str], *words: str | Path, code: int = 0) -> str:
    capsys.readouterr()
    found = main(["report", *map(str, words)])
    captured = capsys.readouterr()
    assert found == code, captured.err
    return captured.err if code else captured.out


def test_final_is_told_from_best(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, make_run(tmp_path, {10: -30.0, 20: -10.0, 30: -20.0}, seed=4))
    assert "td3_bc on Pendulum-v1, seed 4, step 30: stopped (total_timesteps)" in text
    assert "final   -20.00 ± 2.00 at step 30, 5 episodes" in text
    assert "best    -10.00 ± 2.00 at step 20, chosen among 3 evaluations, so it is too high" in text
    lines = [line.split() for line in text.splitlines()]
    assert ["update", "6.0", "60%"] in lines
    assert ["10.0", "seconds"] in lines


def test_a_run_that_is_not_finished_has_no_final_score(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = output(capsys, make_run(tmp_path, {10: -30.0}, finished=False))
    assert "not finished" in text
    assert "latest  -30.00 ± 2.00 at step 10" in text
    assert "final" not in text
    assert "no times recorded" in text


def test_the_score_before_the_end_is_not_final(tmp_path: Path) -> None:
    """An evaluation of step 10 is not one of the policy that the run ended with at step 30."""
    assert read_run(make_run(tmp_path, {10: -30.0})).final is None


def test_seeds_of_one_configuration_are_a_table_with_their_mean(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [
        make_run(tmp_path, {20: 5.0, 30: value}, seed=seed, output_dir=str(seed))
        for seed, value in ((3, 4.0), (1, 1.0))
    ]
    runs.append(make_run(tmp_path, {20: 99.0}, seed=2, finished=False))
    other = make_run(tmp_path, {30: 7.0}, algo="bc")
    text = output(capsys, *runs, other)
    assert "td3_bc on Pendulum-v1: 3 runs of one configuration" in text
    seeds = [line.split()[0] for line in text.splitlines() if line.startswith("  ")][1:4]
    assert seeds == ["1", "2", "3"]
    assert "final   2.500 ± 2.121 over 2 finished runs\n" in text
    assert "best    5.000 ± 0.000 over 2 finished runs, chosen" in text
    assert "bc on Pendulum-v1, seed 0" in text
    found = json.loads(output(capsys, *runs, other, "--json"))
    assert [run["seed"] for run in found["runs"]] == [3, 1, 2, 0]  # as they were given
    assert [run["final"] and run["final"]["mean"] for run in found["runs"]] == [4, 1, None, 7]
    group, other_group = found["groups"]
    assert other_group["seeds"] == [0]
    assert group["finished_seeds"] == [1, 3]
    assert group["final"] == {"mean": 2.5, "std": pytest.approx(4.5**0.5)}  # of a sample


def test_one_finished_seed_has_no_spread(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(tmp_path, {30: 4.0}, seed=1)
    make_run(tmp_path, {20: 9.0}, seed=2, finished=False)
    assert "final   4.000 over 1 finished run\n" in output(capsys, tmp_path)


def test_configurations_say_in_what_they_differ(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in (1, 2):
        for kwargs in ({"gamma": 0.9, "tau": 0.1}, {"gamma": 0.9}):
            make_run(tmp_path, {30: 1.0}, seed=seed, algo_kwargs=kwargs)
    make_run(tmp_path, {30: 1.0}, algo="bc", total_timesteps=7)
    text = output(capsys, tmp_path)
    assert "td3_bc on Pendulum-v1, tau 0.1: 2 runs of one configuration" in text
    assert "td3_bc on Pendulum-v1, tau default: 2 runs of one configuration" in text
    assert "bc on Pendulum-v1, seed 0" in text  # another algorithm is no comparison
    groups = json.loads(output(capsys, tmp_path, "--json"))["groups"][:2]
    assert [group["differs"] for group in groups] == [{"tau": 0.1}, {"tau": None}]


def test_a_real_run_is_reported_as_it_was(
    pendulum_config: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    result = train(pendulum_config())
    (run,) = json.loads(output(capsys, result.run_dir, "--json"))["runs"]
    with np.load(result.run_dir / "evaluations.npz") as saved:
        means = saved["returns"].mean(1)
        best = int(saved["steps"][means.argmax()])
    assert run["final"]["mean"] == pytest.approx(means[-1])
    assert run["best"]["step"] == best
    assert (result.run_dir / "checkpoints" / "best").resolve().name == f"step_{best}"
    assert run["seconds"] == json.loads((result.run_dir / "result.json").read_text())["seconds"]


def test_a_killed_run_is_reported_as_far_as_it_came(pendulum_config: Any) -> None:
    run = read_run(killed_run(pendulum_config(), 25))
    assert (run.finished, run.stop_reason, run.final) == (False, None, None)
    assert run.step == 21  # the last row
    assert sum(run.seconds.values()) > 0  # of its newest checkpoint


def test_without_an_environment_there_is_no_score(
    small_config: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    text = output(capsys, train(small_config()).run_dir)
    assert "td3_bc on logs" in text
    assert "not evaluated" in text


def test_what_is_not_a_run_directory_is_named(
    pendulum_config: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = train(pendulum_config()).run_dir
    assert "no such file" in output(capsys, tmp_path / "nothing", code=2)
    assert "it has no config.yaml" in output(capsys, run_dir / "metrics.jsonl", code=2)
    assert str(run_dir) in output(capsys, run_dir.parent)
    assert "nor runs in it" in output(capsys, run_dir / "checkpoints", code=2)
    assert "is a checkpoint" in output(capsys, run_dir / "checkpoints" / "last", code=2)
    output(capsys, code=2)
    (run_dir / "result.json").write_text("{")
    assert "result.json is damaged" in output(capsys, run_dir, code=2)
    (run_dir / "config.yaml").write_text("{")
    assert "config.yaml cannot be read" in output(capsys, run_dir, code=2)


def test_report_needs_no_torch(tmp_path: Path) -> None:
    run, other = make_run(tmp_path, {30: 1.0}), make_run(tmp_path, {30: 2.0}, algo="bc")
    script = (
        f"from rl_training.cli.main import main\nassert main(['report', {str(run)!r}]) == 0\n"
        f"assert main(['compare', {str(run)!r}, {str(other)!r}]) == 0\n"
        "import sys\nassert not {'torch', 'gymnasium', 'matplotlib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
