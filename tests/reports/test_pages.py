"""Pages of comparisons and score cards: self-contained, escaped, the same bytes each time, of bounded size."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib", reason="needs the extra report")
pytest.importorskip("jinja2", reason="needs the extra report")

from tests.support.cards import score_card
from tests.support.run_directories import make_run

from rl_training.cli.main import main
from rl_training.config import MissingExtraError
from rl_training.reports import report_page
from rl_training.reports.card_page import write_card
from rl_training.reports.comparison import Comparison, compare_runs
from rl_training.reports.figures import write_figures
from rl_training.reports.pages.page import fact, interval, number, percent
from rl_training.reports.report_page import write_report


class Elements(HTMLParser):
    """Names and attributes of all elements, and the visible text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("runs")
    for seed in range(2):
        make_run(directory, "sac", seed, metrics=2)
        make_run(directory, "td3", seed, metrics=2, level=-300, learning_rate=0.1)
    make_run(directory, "td3", 2, metrics=2, finished=False)
    (directory / "broken").mkdir()
    (directory / "broken" / "config.yaml").write_text("algo: [")
    return directory


@pytest.fixture(scope="module")
def comparison(runs: Path) -> Comparison:
    return compare_runs([runs])


@pytest.fixture(params=["report", "card"])
def write(request: pytest.FixtureRequest, comparison: Comparison) -> Callable[[Path], Path]:
    if request.param == "report":
        return lambda path: write_report(comparison, path)
    return lambda path: write_card(score_card(), path)


def test_a_page_holds_everything_it_needs_and_forbids_the_rest(
    write: Callable[[Path], Path], tmp_path: Path
) -> None:
    text = write(tmp_path / "page.html").read_text()
    assert text == write(tmp_path / "again.html").read_text()
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len({*ids})
    elements = Elements(text)
    assert not elements.tags & {"script", "img", "link", "iframe", "object", "form", "base"}
    assert not elements.attributes & {"src", "srcset", "action", "onclick", "onerror", "onload"}
    assert "://" not in text
    assert all(target.startswith("#") for target in re.findall(r'href="([^"]*)"', text))
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", text))
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"
    assert policy in text


@pytest.mark.parametrize("package", ["matplotlib", "jinja2"])
def test_a_missing_package_is_named_before_anything_is_written(
    write: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=r"pip install 'rl-training\[report\]'"):
        write(tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "command",
    [
        ["report", "no-run", "-o", "page.html"],
        ["report", "no-run", "--figures", "figures"],
        ["ope", "no-policy", "--dataset", "no.npz", "--html", "page.html"],
    ],
)
def test_a_verb_that_needs_a_missing_package_says_so_before_it_reads_anything(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert main(command) == 2
    assert "pip install 'rl-training[report]'" in capsys.readouterr().err


# -- comparison ----------------------------------------------------------------------------------


def test_the_report_tells_what_a_reader_asks(comparison: Comparison, tmp_path: Path) -> None:
    text = Elements(write_report(comparison, tmp_path / "report.html").read_text()).text
    for asked in (
        "sac, td3 learning_rate=",  # compared
        "95\u00a0% stratified bootstrap",
        "Probability of improvement",
        "learning_rate",  # differs
        "0.1",
        "default",
        "evaluate",  # time
        "not finished",
        "broken",
        "rl-training train ",  # command
    ):
        assert asked in text, asked


def test_a_report_says_no_more_than_is_known(tmp_path: Path) -> None:
    for seed in range(2):
        run = make_run(tmp_path / "runs", "bc", seed, metrics=1, rows=3)
        log = {"source": "log.npz", "transitions": 100, "sha256": f"part{seed}"}
        (run / "metadata.json").write_text(json.dumps({"dataset": log}))
        (run / "metrics.jsonl").write_text('{"step": 300, "train/loss": 1.0}\n')
    comparison = compare_runs([tmp_path / "runs"])
    text = Elements(write_report(comparison, tmp_path / "page.html").read_text()).text
    assert "Mean score on" not in text  # of no run
    assert text.count("log.npz") == 1
    assert "Different for each seed: sha256." in text
    comparison = compare_runs([tmp_path / "runs"], metric="train/loss")
    text = Elements(write_report(comparison, tmp_path / "page.html").read_text()).text
    assert "Mean score on" in text
    assert "better" not in text
    assert "A score is the last value of a finished run." in text


def test_a_report_of_thousands_of_metrics_draws_the_first_and_names_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_page, "CURVES", 5)
    make_run(tmp_path / "runs", "sac", 0, rows=2, metrics=3_000)
    path = write_report(compare_runs([tmp_path / "runs"]), tmp_path / "report.html")
    text = path.read_text()
    assert text.count('class="metric ') == 5
    assert "more metrics are not drawn" in text
    assert path.stat().st_size < 300_000


def test_every_figure_is_a_file_with_a_name_that_tells_what_it_shows(
    comparison: Comparison, tmp_path: Path
) -> None:
    paths = write_figures(comparison, tmp_path / "new" / "figures")
    names = {path.name for path in paths}
    assert {*(tmp_path / "new" / "figures").iterdir()} == {*paths}
    for stem in ("eval_return_mean", "performance_profile_pendulum-v1", "train_loss_1"):
        assert {f"{stem}.svg", f"{stem}.png"} <= names


# -- score card ----------------------------------------------------------------------------------


def test_the_verdict_and_its_reasons_come_first(tmp_path: Path) -> None:
    text = Elements(write_card(score_card(), tmp_path / "card.html").read_text()).text
    body = text[text.index("Is iql") :]
    order = ["better than the log", "above the log by 70", "weighted doubly", "discount factor"]
    assert [body.index(word) for word in order] == sorted(body.index(word) for word in order)
    assert "does not apply: the effective sample size is 1.2" in text


def test_an_estimate_that_is_not_trusted_says_why_and_reasons_are_not_repeated(
    tmp_path: Path,
) -> None:
    card = score_card()
    card["estimates"][1] |= {"trusted": False, "reason": "the effective sample size is 7"}
    card["estimates"][0] |= {"applies": False, "reason": "the effective sample size is 1.2"}
    text = Elements(write_card(card, tmp_path / "card.html").read_text()).text
    assert "not trusted: the effective sample size is 7" in text
    assert text.count("the effective sample size is 1.2") == 1
    assert "fitted Q evaluation, per-decision importance sampling" in text


def test_a_card_without_its_optional_parts_is_a_page_too(tmp_path: Path) -> None:
    card = score_card(support=None, behaviour_model=None, pictures=None, something_new=[1, 2])
    assert "better than the log" in write_card(card, tmp_path / "card.html").read_text()


def test_numbers_are_written_for_readers() -> None:
    values: list[Any] = [None, 3, -1234.5678, 0.0, 1e-7, float("nan"), float("-inf"), True]
    expected = ["–", "3", "−1,235", "0", "1.000e−07", "not a number", "−∞", "true"]
    assert [number(value) for value in values] == expected
    assert [fact(0.99), fact(None), fact("x"), fact(16_000)] == ["0.99", "–", "x", "16,000"]
    assert (percent(0.381), percent(None)) == ("38.1\u00a0%", "–")
    assert (interval(1.0, 2.0), interval(None, 2.0)) == ("[1.000, 2.000]", "–")
