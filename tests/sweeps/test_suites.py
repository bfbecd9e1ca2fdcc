"""Benchmark suites: described, trained, scored, gone on with, and written as a table."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from rl_training import api
from rl_training.cli.main import main
from rl_training.config import ConfigError, packaged_suites
from rl_training.reports.suite_table import CellScores, SuiteTable
from rl_training.runtime import TrainConfig, train
from rl_training.sweeps.benchmarking import SuiteRun, replace_table
from rl_training.sweeps.suites import Suite, chosen_cells, comparable, trials_of

PAGES = Path(__file__).parents[2] / "docs" / "benchmarks"
CELL = {"row": "bc", "config": "bc/pendulum"}
SMOKE = """
title: A try
episodes: 2
seeds: [1, 2]
overrides:
  total_timesteps: 30
  eval_episodes: 0
  hidden_sizes: [8]
  env_kwargs.max_episode_steps: 20
references: {behaviour: {return: -300}}
cells:
- {row: bc, config: bc/pendulum}
- {row: td3_bc, config: td3_bc/pendulum}
"""


def table_lines(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if line.startswith("|")]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of the suite above, after it was run."""
    directory = tmp_path_factory.mktemp("suite")
    (directory / "try.yaml").write_text(SMOKE)
    words = ["--output-dir", str(directory / "out"), "--jobs", "2", "--quiet"]
    assert main(["benchmark", str(directory / "try.yaml"), *words]) == 0
    return directory


@pytest.fixture
def suite_dir(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "suite", symlinks=True))


def run(directory: Path, *words: str) -> int:
    common = ["--output-dir", str(directory / "out"), "--jobs", "1", "--quiet"]
    return main(["benchmark", str(directory / "try.yaml"), *common, *words])


def scores(directory: Path) -> list[float]:
    facts = json.loads((directory / "out" / "table.json").read_text())
    return [run["return_mean"] for cell in facts["cells"] for run in cell["runs"]]


# -- running ------------------------------------------------------------------------------------


def test_a_suite_becomes_a_table(finished: Path) -> None:
    lines = table_lines(finished / "out" / "table.md")
    assert lines[:3] == ["| configuration | return |", "|---|---|", "| behaviour | -300.0 |"]
    assert [line.split("|")[1].strip() for line in lines[3:]] == ["`bc`", "`td3_bc`"]
    assert all(re.fullmatch(r" -\d+\.\d ± \d+\.\d ", line.split("|")[2]) for line in lines[3:])
    facts = json.loads((finished / "out" / "table.json").read_text())
    assert facts["command"] == f"rl-training benchmark {finished / 'try.yaml'}"
    (saved, *_) = facts["cells"][0]["runs"]
    assert saved["versions"]["torch"]
    assert saved["date"]
    assert saved["training_seconds"] > 0


def test_scores_are_those_of_the_run_trained_alone(finished: Path, tmp_path: Path) -> None:
    (cell, _) = Suite.load(finished / "try.yaml").cells(tmp_path)
    result = train(TrainConfig(**cell.trials[1].config.as_dict()))
    alone = api.evaluate(result.run_dir, num_episodes=2)
    assert scores(finished)[1] == alone["eval/return_mean"]


def test_a_finished_suite_trains_nothing(suite_dir: Path) -> None:
    before = scores(suite_dir)
    for path in (suite_dir / "out").glob("*__*"):
        shutil.rmtree(path)  # the scores are kept without the runs
    assert run(suite_dir) == 0
    assert scores(suite_dir) == before
    assert list((suite_dir / "out").glob("*__*")) == []


def test_only_what_has_no_score_is_trained(suite_dir: Path) -> None:
    before = scores(suite_dir)
    first, *_ = sorted((suite_dir / "out" / "cells").glob("bc*"))
    first.unlink()
    shutil.rmtree(suite_dir / "out" / first.stem)
    others = {path: path.stat().st_mtime_ns for path in (suite_dir / "out" / "cells").iterdir()}
    assert run(suite_dir, "--only", "td3_bc") == 0
    assert not first.exists()
    assert run(suite_dir, "--only", "bc") == 0
    assert scores(suite_dir) == before
    assert {path: path.stat().st_mtime_ns for path in others} == others


def test_a_damaged_score_is_made_again_from_the_run(suite_dir: Path) -> None:
    before = scores(suite_dir)
    first, *_ = (suite_dir / "out" / "cells").iterdir()
    whole = json.loads(first.read_text())
    suite = SuiteRun.of(Suite.load(suite_dir / "try.yaml"), suite_dir / "out")
    for content in ("{", "[]", "{}", json.dumps({**whole, "return_mean": "high"})):
        first.write_text(content)
        assert [trial.name for trial in suite.missing()] == [first.stem]
    assert run(suite_dir) == 0
    assert scores(suite_dir) == before


def test_scores_of_other_options_or_episodes_do_not_count(finished: Path, tmp_path: Path) -> None:
    for old, new in (("episodes: 2", "episodes: 3"), ("hidden_sizes: [8]", "hidden_sizes: [4]")):
        (tmp_path / "try.yaml").write_text(SMOKE.replace(old, new))
        changed = SuiteRun.of(Suite.load(tmp_path / "try.yaml"), finished / "out")
        assert len(changed.missing()) == 4
    same = SuiteRun.of(Suite.load(finished / "try.yaml"), finished / "out")
    assert same.missing() == []


@pytest.mark.slow
def test_a_cell_that_fails_leaves_the_others_alone(
    suite_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = "- {row: broken, config: td3_bc/pendulum, overrides: {learning_rate: 1.0e+30}}\n"
    (suite_dir / "try.yaml").write_text(SMOKE + broken)
    assert run(suite_dir, "--retries", "0") == 1
    errors = capsys.readouterr().err
    assert "failed: broken return seed=1: " in errors
    lines = table_lines(suite_dir / "out" / "table.md")
    assert lines[-1] == "| `broken` | not run |"
    assert "±" in lines[-2]


def test_json_and_page(suite_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = suite_dir / "page.md"
    page.write_text("# A\n<!-- table of the suite try -->\nold\n<!-- end of the table -->\nafter\n")
    capsys.readouterr()
    assert run(suite_dir, "--json", "--page", str(page)) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["failed"] == {}
    assert [cell["row"] for cell in facts["cells"]] == ["bc", "td3_bc"]
    assert page.read_text().startswith("# A\n<!-- table of the suite try -->\n\n| configuration")
    assert page.read_text().endswith("\n\n<!-- end of the table -->\nafter\n")
    assert table_lines(page) == table_lines(suite_dir / "out" / "table.md")


def test_a_page_without_a_place_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("text")
    for page in (tmp_path / "page.md", tmp_path / "none.md"):
        with pytest.raises(ConfigError, match=r"cannot read|has no place for the table"):
            replace_table(page, "try", "| a |")
    assert (tmp_path / "page.md").read_text() == "text"


def test_a_page_without_a_place_is_refused_before_anything_is_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--output-dir", str(tmp_path / "out"), "--page", str(tmp_path / "none.md")]
    assert main(["benchmark", "smoke", *words]) == 2
    assert "cannot read" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


# -- descriptions -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"origin": "x", "self": 1}, "origin: unknown key"),
        ({"titel": "x"}, "titel: unknown key; did you mean 'title'?"),
        ({"cells": [{**CELL, "colunm": "x"}]}, "cells.1.colunm: unknown key; did you mean 'column'?"),
        ({"cells": [CELL, CELL]}, "cells: there are two cells 'bc', 'return'"),
        ({"cells": []}, "cells: must have at least 1 entries"),
        ({"seeds": []}, "seeds: must have at least 1 entries"),
        ({"seeds": [1, 1]}, r"seeds: must be distinct, got \[1, 1\]"),
        ({"episodes": 0}, "episodes: must be >= 1"),
        ({"statistic": "median"}, "statistic: expected one of 'mean', 'iqm'"),
        ({"cells": [{"config": "bc/pendulum"}]}, "cells.1.row: is required"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_suite_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("?", r"\?")):
        Suite.of("try", **{"title": "A", "seeds": [1], "cells": [CELL], **changes})


def test_every_wrong_cell_is_named_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.yaml").write_text(
        "title: A\nseeds: [1]\ncells:\n"
        "- {row: a, config: bc/pendulm}\n"
        "- {row: b, config: bc/pendulum, overrides: {tua: 1}}\n"
        "- {row: c, config: bc/pendulum, overrides: {env_id: null, eval_episodes: 0}}\n"
    )
    words = ["--output-dir", str(tmp_path / "out")]
    assert main(["benchmark", str(tmp_path / "bad.yaml"), *words]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 3
    assert "cell 1, a: no configuration file or packaged configuration 'bc/pendulm'" in errors[0]
    assert "cell 2, b.tua: unknown key" in errors[1]
    assert "cell 3, c: has no env_id" in errors[2]
    assert not (tmp_path / "out").exists()


def test_unknown_names(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["benchmark", "smoek"]) == 2
    assert "did you mean 'smoke'?" in capsys.readouterr().err
    assert main(["benchmark", "smoke", "--only", "td3-bc", "--output-dir", str(tmp_path)]) == 2
    assert "fits no cell; did you mean 'td3_bc'?" in capsys.readouterr().err


def test_cells_are_chosen_by_row_column_or_configuration() -> None:
    cells = Suite.load("offline").cells("runs")

    def chosen(*patterns: str) -> set[str]:
        return {cell.config for cell in chosen_cells(cells, patterns)}

    assert len(chosen()) == 19
    assert chosen("td3_bc") == {"td3_bc/pendulum", "td3_bc/mountaincar"}
    assert chosen("td3_bc/pendulum", "bc *cart*") == {"td3_bc/pendulum", "bc/cartpole"}
    assert len(chosen("cartpole/*")) == 5


def test_the_same_configuration_in_two_cells_is_trained_once() -> None:
    cells = [{**CELL, "row": row} for row in ("a", "b")]
    suite = Suite.of("try", title="A", seeds=[1, 2], cells=cells)
    assert len(list(trials_of(suite.cells("runs")))) == 2


def test_where_runs_lie_is_no_part_of_a_score() -> None:
    suite = Suite.of("try", title="A", seeds=[1], cells=[CELL])
    (here,), (there,) = suite.cells("runs/a"), suite.cells("runs/b")
    assert here.trials[0].name == there.trials[0].name
    assert comparable(here.trials[0].config.as_dict()) == comparable(
        there.trials[0].config.as_dict()
    )


@pytest.mark.parametrize("name", packaged_suites())
def test_packaged_suites_are_valid(name: str) -> None:
    assert Suite.load(name).cells("runs")


def test_list_shows_suites(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--json"]) == 0
    listed = {suite["name"] for suite in json.loads(capsys.readouterr().out)["suites"]}
    assert listed == set(packaged_suites())


@pytest.mark.parametrize(
    ("suite", "page"), [("offline", "offline.md"), ("benchmarks/own_log.yaml", "own_log.md")]
)
def test_pages_have_the_table_of_their_suite(
    suite: str, page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Running the suite again would write the same header, rows and references."""
    monkeypatch.chdir(PAGES.parents[1])
    table = SuiteRun.of(Suite.load(suite), tmp_path).table()
    written = [f"| {' | '.join(row)} |" for row in (table.header, *table.rows)]
    published = table_lines(PAGES / page)
    del published[1]
    scores = r"-?\d+\.\d( ± \d+\.\d)?|\d of \d|not run"

    def frame(line: str) -> str:
        cells = [cell.strip() for cell in line.split("|")]
        return "|".join("N" if re.fullmatch(scores, cell) else cell for cell in cells)

    assert list(map(frame, published)) == list(map(frame, written))


# -- tables -------------------------------------------------------------------------------------


def scored(value: float, *warnings: str) -> dict[str, Any]:
    return {"return_mean": value, "warnings": warnings, "versions": {"torch": "2", "numpy": "3"}}


def a_table(**changes: Any) -> SuiteTable:
    cells = (
        CellScores("a", "x y", "c", (1, 2), (scored(1.0), scored(3.0, "odd"))),
        CellScores("b", "z", "c", (1, 2), (scored(5.0), None)),
        CellScores("a", "z", "c", (1,), (None,)),
    )
    values = {
        "title": "T", "command": "c", "row_title": "what", "column_title": "task", "layout": "grid",
        "statistic": "mean", "episodes": 5, "references": {"log": {"x y": 2.0}}, "cells": cells,
    }  # fmt: skip
    return SuiteTable(**{**values, **changes})


def test_a_grid_has_a_column_per_column() -> None:
    table = a_table()
    assert table.header == ["what", "x y", "`z`"]
    assert table.rows == [
        ["log", "2.0", "—"],
        ["`a`", "2.0 ± 1.4", "not run"],
        ["`b`", "—", "5.0 (1 of 2)"],
    ]
    assert table.versions() == "torch 2, numpy 3"


def test_a_list_has_a_line_per_cell() -> None:
    table = a_table(layout="list")
    assert table.header == ["what", "task", "return", "log", "above log", "warned"]
    assert table.rows == [
        ["`a`", "x y", "2.0 ± 1.4", "2.0", "1 of 2", "1 of 2"],
        ["`b`", "`z`", "5.0 (1 of 2)", "—", "—", "0 of 1"],
        ["`a`", "`z`", "not run", "—", "—", "0 of 0"],
    ]


def test_interquartile_means_have_bootstrap_intervals() -> None:
    values = (1.0, 2.0, 3.0, 4.0, 100.0)
    cell = CellScores("a", "x", "c", (1, 2, 3, 4, 5), tuple(map(scored, values)))
    assert re.fullmatch(r"3\.0 \[\d\.\d, \d+\.\d\]", cell.text("iqm"))
    assert "bootstrap interval" in a_table(statistic="iqm").page()
