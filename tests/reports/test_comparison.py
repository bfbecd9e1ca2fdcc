"""Comparisons claim what seeds allow, list what they cannot read, and give nothing hostile a way through."""

from __future__ import annotations

import csv
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.scored_runs import make_run

from rl_training import api
from rl_training.cli.main import main
from rl_training.config import ConfigError
from rl_training.reports.series import MAX_METRICS, MAX_POINTS

ATTACKS = ["<script>alert(1)</script>/x", "eval/[red]x[/red]", "=cmd|' /C calc'!A0/x", "eval/" + "y" * 5000,
           "train/\u202ereversed", "train/new\nline", "train/\x1b[2J", "step/step", "__class__/x"]  # fmt: skip


def make_side(directory: Path, scores: list[float], **changes: Any) -> Path:
    for seed, score in enumerate(scores):
        make_run(directory, {10: 1000.0, 30: score}, seed=seed, **changes)
    return directory


def output(capsys: pytest.CaptureFixture[str], *words: str | Path, code: int = 0) -> str:
    return said(capsys, "report", *words, code=code)


def said(capsys: pytest.CaptureFixture[str], *words: str | Path, code: int = 0) -> str:
    capsys.readouterr()
    assert main([str(word) for word in words]) == code
    captured = capsys.readouterr()
    return captured.err if code else captured.out


def test_the_last_policy_counts_and_the_best_only_if_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_side(tmp_path, [1.0, 2.0, 3.0, 6.0])
    (group,) = api.compare_runs([tmp_path]).groups
    assert group.scores == (1.0, 2.0, 3.0, 6.0)
    assert group.summary is not None
    assert (group.summary.mean, group.summary.iqm, group.summary.median) == (3.0, 2.5, 2.5)
    assert api.compare_runs([tmp_path], choice="best").groups[0].scores == (1000.0,) * 4
    text = output(capsys, tmp_path, "--best")
    assert "best eval/return_mean, chosen after the fact, so it is too high:" in text
    assert (
        "IQM     1000, 95% interval 1000 to 1000, chosen after the fact, so it is too high" in text
    )
    assert "too high" in json.loads(output(capsys, tmp_path, "--best", "--json"))["score"]


def test_any_metric_can_be_the_score(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_side(tmp_path, [1.0, 2.0])
    (group,) = api.compare_runs([tmp_path], metric="train/actor_loss").groups
    assert group.scores == (0.5, 0.5)
    error = output(capsys, tmp_path, "--metric", "train/actor_los", code=2)
    assert "no run has the metric 'train/actor_los'; did you mean 'train/actor_loss'?" in error
    error = output(capsys, tmp_path, "--metric", "train/actor_loss", "--best", code=2)
    assert "not known to be better if higher" in error


def test_runs_that_go_on_or_repeat_a_seed_are_listed_and_not_scored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_side(tmp_path, [1.0, 2.0])
    make_run(tmp_path, {20: 9.0}, seed=7, finished=False)
    repeated = make_run(tmp_path, {30: 8.0}, seed=1)
    (group,) = api.compare_runs([tmp_path]).groups
    assert group.scores == (1.0, 2.0)
    assert "seed 7 has no score: not finished" in group.warnings
    (missing,) = (run.missing for run in group.runs if run.report.run == str(repeated))
    assert missing is not None
    assert missing.startswith("same configuration and seed as")
    text = output(capsys, tmp_path)
    assert "final   1.500 ± 0.707 over 2 finished runs" in text
    assert "mean    1.500, 95% interval" in text
    error = output(capsys, tmp_path.parent, code=2)
    assert f"{tmp_path.parent} holds directories of runs: give these, such as" in error


def test_runs_on_logs_alone_are_told_which_metric_can_be_their_score(tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        make_run(tmp_path, {}, seed=seed, env_id=None)
    comparison = api.compare_runs([tmp_path])
    assert comparison.groups[0].warnings == ("seeds 1, 2, 3 have no score: not evaluated",)
    assert any("such as --metric train/actor_loss" in note for note in comparison.notes)


def test_broken_runs_are_listed_and_in_nobodys_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_side(tmp_path, [1.0, 2.0])
    contents = {"config.yaml": b"\xff\xfe\x00", "result.json": b"[" * 10_000, "metrics.jsonl": None}
    for name, content in contents.items():
        broken = make_run(tmp_path, {30: 5.0}, seed=9)
        (broken / name).unlink()
        if content is None:
            (broken / name).symlink_to("/etc/passwd")
        else:
            (broken / name).write_bytes(content)
    (make_run(tmp_path, {30: 5.0}, seed=10) / "config.yaml").write_text("[" * 200)
    make_run(tmp_path, {30: 5.0}, env_id=[1, 2])
    text = output(capsys, tmp_path)
    assert "final   1.500 ± 0.707 over 2 finished runs" in text
    assert text.count("cannot be read") >= 4
    comparison = api.compare_runs([tmp_path])
    assert len(comparison.broken) == 5
    assert sum("it is a link" in run.reason for run in comparison.broken) == 1


def test_configurations_are_told_apart_by_what_differs_and_matched_over_tasks(
    tmp_path: Path,
) -> None:
    for env_id in ("Hopper-v4", "Walker2d-v4"):
        for gamma in (0.9, 0.99):
            make_side(tmp_path, [gamma, 1.0], env_id=env_id, algo_kwargs={"gamma": gamma})
        make_side(tmp_path, [5.0, 6.0], env_id=env_id, algo="bc")
    comparison = api.compare_runs([tmp_path])
    labels = ("td3_bc gamma=0.9", "td3_bc gamma=0.99", "bc")
    assert [task.labels for task in comparison.tasks] == [labels, labels]
    over_tasks = {(each.x, each.y): each for each in comparison.improvements if each.task is None}
    assert over_tasks[labels[0], labels[2]].probability == 0.0
    assert over_tasks[labels[0], labels[1]].probability == 0.375
    assert {each.label for each in comparison.aggregates} == set(
        labels
    )  # both have reference scores
    assert any("version 2" in note for note in comparison.notes)


def test_datasets_of_an_environment_are_tasks_if_an_algorithm_has_several(tmp_path: Path) -> None:
    for dataset in ("medium", "expert"):
        make_side(tmp_path, [1.0, 2.0], algo_kwargs={"dataset_id": dataset})
    tasks = [task.name for task in api.compare_runs([tmp_path]).tasks]
    assert tasks == ["Pendulum-v1 (medium)", "Pendulum-v1 (expert)"]


def test_curves_have_a_band_over_finished_seeds(tmp_path: Path) -> None:
    make_side(tmp_path, [1.0, 2.0, 3.0])
    make_run(tmp_path, {10: 0.0}, seed=8, finished=False)
    comparison = api.compare_runs([tmp_path])
    assert api.metric_names(comparison)["train"] == ("train/actor_loss",)
    (curve,) = api.metric_curves(comparison, "eval/return_mean")
    assert curve.steps.tolist() == [10.0, 30.0]
    assert curve.mean.tolist() == [1000.0, 2.0]
    assert np.isnan(curve.values[3]).tolist() == [False, True]
    assert curve.low is not None
    assert curve.high is not None
    assert 1.0 <= curve.low[1] < 2.0 < curve.high[1] <= 3.0


def test_long_series_are_averaged_and_their_last_value_is_not(tmp_path: Path) -> None:
    run = make_run(tmp_path, {})
    rows = [
        {"step": step, "train/x": float(step % 2), "eval/y": math.nan} for step in range(30_001)
    ]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    series = api.compare_runs([run]).runs[0].series["train/x"]
    assert MAX_POINTS // 2 <= len(series.steps) <= MAX_POINTS
    assert (series.last, series.highest) == (0.0, 1.0)
    np.testing.assert_allclose(series.values, 0.5, atol=0.1)
    assert np.all(np.diff(series.steps) > 0)


def test_few_seeds_are_not_enough_for_a_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = [
        make_side(tmp_path / name, [base, base + 1, base + 2])
        for name, base in (("a", 10.0), ("b", 0.0))
    ]
    text = said(capsys, "compare", *few)
    assert "a against b: not distinguishable with 3 and 3 seeds" in text
    assert (
        "even a complete order of so few seeds arises by chance in 10% of cases; 4 per side are enough"
        in text
    )
    many = [
        make_side(tmp_path / name, list(np.arange(5.0) + base))
        for name, base in (("c", 0.0), ("d", 9.0))
    ]
    text = said(capsys, "compare", *many)
    assert "c against d: d is better" in text
    assert "difference of means         -9.00, 95% interval -10" in text
    assert "the configurations are the same" in text
    (task,) = json.loads(said(capsys, "compare", *many, "--json"))["tasks"]
    assert task["verdicts"][0]["p_value"] == pytest.approx(2 / math.comb(10, 5))
    alike = make_side(tmp_path / "e", [0.5, 1.0, 2.2, 3.1, 4.4])
    assert "arises by chance in" in said(capsys, "compare", many[0], alike)


def test_verdicts_are_wrong_no_more_often_than_they_say(tmp_path: Path) -> None:
    from rl_training.reports.verdicts import Judge

    random = np.random.default_rng(0)
    judge = Judge(better=True, confidence=0.95, seed=0)
    alike = [judge.verdict("x", "y", "t", *random.standard_normal((2, 1, 5))) for _ in range(200)]
    assert sum("is better" in verdict.sentence for verdict in alike) <= 0.05 * 200 + 8
    apart = judge.verdict("x", "y", "t", [[5.0, 6.0, 7.0, 8.0]], [[1.0, 2.0, 3.0, 4.0]])
    assert apart.sentence == "x is better"
    assert apart.p_value == pytest.approx(2 / 70)
    lucky = judge.verdict("x", "y", "t", [[0.1] * 20], [[0.0] * 15 + [1000.0] * 5])
    assert lucky.p_value < 0.05
    assert "higher mean has the lower score in most pairs" in lucky.sentence


def test_sides_that_cannot_be_compared_are_told_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = make_side(tmp_path / "one", [1.0, 2.0], total_timesteps=30)
    other = make_side(tmp_path / "other", [1.0, 2.0], env_id="CartPole-v1")
    error = said(capsys, "compare", one, other, code=2)
    assert "no task in common: one on Pendulum-v1; other on CartPole-v1" in error
    longer = make_side(tmp_path / "longer", [1.0, 2.0], total_timesteps=60, eval_episodes=7)
    text = said(capsys, "compare", one, longer)
    assert "the budget differs (total_timesteps: 30, 60)" in text
    assert "the number of evaluation episodes differs (eval_episodes: 5, 7)" in text
    going = tmp_path / "going"
    make_run(going, {10: 1.0}, finished=False)
    assert "going: seed 0 has no score: not finished" in said(capsys, "compare", one, going)
    with pytest.raises(ConfigError, match="two sides or more"):
        api.compare_sides([one])
    with pytest.raises(ConfigError, match="given twice"):
        api.compare_sides([one, one])
    link = tmp_path / "link"
    link.symlink_to(one)
    with pytest.raises(ConfigError, match="run0 is on two sides: one and link"):
        api.compare_sides([one, link])


def test_scores_that_are_all_alike_have_an_interval_and_overlap(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = [make_side(tmp_path / name, [500.0] * 4) for name in ("a", "b")]
    text = said(capsys, "compare", *sides)
    assert "a against b: not distinguishable" in text
    assert "probability of improvement  0.50, 95% interval 0.50 to 0.50" in text


def test_different_data_is_named_whether_or_not_it_is_what_is_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = [
        make_side(tmp_path / name, [1.0, 2.0], algo=algo, algo_kwargs={"dataset_id": name})
        for name, algo in (("medium", "bc"), ("expert", "bc"), ("random", "iql"))
    ]
    for pair in (sides[:2], sides[1:]):
        assert "the data differs (" in said(capsys, "compare", *pair)
    assert any("the data differs" in note for note in api.compare_runs(sides[1:]).notes)


def hostile_run(directory: Path, **changes: Any) -> Path:
    run = make_run(directory, {30: 1.0}, **changes)
    rows: list[Any] = [{"step": 30, **dict.fromkeys(ATTACKS, 1.0), "eval/return_mean": math.inf}]
    rows.append({"step": 30, "eval/return_mean": 1.0, "eval/return_std": math.nan})
    rows += [[1], {"step": "x"}, {"step": 30, "eval/a": [1], "eval/b": True, "eval/c": 10**400}]
    text = "\n".join(map(json.dumps, rows)) + '\n{"step": 30, "eval/ret'
    (run / "metrics.jsonl").write_bytes(b"\x00\xff\n" + text.encode() + b"\n" + b"x" * (3 << 20))
    metadata = {"argv": ["--plugin", "$(rm -rf ~)"], "versions": {"rl-training": "<b>9</b>"},
                "dataset": {"source": "<img>", "deep": {"a": {"b": {"c": {"d": 1}}}}, "list": [[1]]}}  # fmt: skip
    (run / "metadata.json").write_text(json.dumps(metadata))
    return run


def test_hostile_names_and_values_do_not_get_through(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"note": "=HYPERLINK(1)", "mark": "[bold]<script>"}
    runs = [hostile_run(tmp_path / "runs", seed=seed, algo_kwargs=options) for seed in (0, 1)]
    make_side(tmp_path / "runs", [1.0, 2.0], algo="=1+1")
    text = output(capsys, tmp_path / "runs", "--csv", tmp_path / "csv")
    assert "\x1b" not in text
    assert "\u202e" not in text
    (first, *_) = api.compare_runs([tmp_path / "runs"]).groups
    assert first.scores == (1.0, 1.0)
    assert set(first.runs[0].series) == {
        "eval/return_mean",
        "eval/return_std",
        *ATTACKS[:3],
        *ATTACKS[7:],
    }
    assert "'$(rm -rf ~)'" in first.runs[0].report.command
    assert first.runs[0].report.dataset == {"source": "<img>"}
    assert str(runs[0]) in text
    for path in (tmp_path / "csv").iterdir():
        with path.open(newline="") as file:
            cells = [cell for row in csv.reader(file) for cell in row]
        odd = [
            cell for cell in cells if cell.startswith(("=", "+", "@", "-")) and not _is_number(cell)
        ]
        assert not odd
        assert "\x1b" not in "".join(cells)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def test_csv_tables_hold_the_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_side(tmp_path / "runs", [-1.0, -3.0])
    make_side(tmp_path / "runs", [4.0], algo="bc")
    output(capsys, tmp_path / "runs", "--csv", tmp_path / "csv")
    tables = {}
    for path in (tmp_path / "csv").glob("*.csv"):
        with path.open(newline="") as file:
            tables[path.stem] = list(csv.DictReader(file))
    assert [row["score"] for row in tables["runs"]] == ["-1.0", "-3.0", "4.0"]
    assert [row["mean"] for row in tables["groups"]] == ["-2.0", "4.0"]
    assert [row["mean_low"] for row in tables["groups"]] == ["-3.0", ""]  # one seed has no interval
    assert tables["improvements"][0]["probability"] == "0.0"
    last = [
        row["value"] for row in tables["curves"] if row["seed"] == "mean" and row["step"] == "30"
    ]
    assert last == ["-2", "4"]
    (tmp_path / "file").touch()
    assert "cannot write" in output(capsys, tmp_path / "runs", "--csv", tmp_path / "file", code=2)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_million_columns_take_little_memory(tmp_path: Path) -> None:
    run = make_run(tmp_path, {30: 1.0})
    with (run / "metrics.jsonl").open("a") as file:
        for line in range(50):
            names = (f'"a/{line}_{column}": 1.5' for column in range(20_000))
            file.write(f'{{"step": 30, {", ".join(names)}}}\n')
    script = (
        "from pathlib import Path\nfrom rl_training import api\n"
        f"comparison = api.compare_runs([{str(run)!r}])\n"
        "(group,) = comparison.groups\n"
        f"assert group.scores == (1.0,) and len(group.runs[0].series) == {MAX_METRICS}\n"
        "assert any('the others are left out' in warning for warning in group.warnings)\n"
        "print(Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    assert int(done.stdout) < 150_000  # kilobytes, with the interpreter and numpy
