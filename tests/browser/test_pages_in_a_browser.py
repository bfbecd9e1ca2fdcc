"""Report and score card in a headless Chromium: drawn, readable, and without a request to anywhere.

`make test-browser` installs Chromium where it is missing and keeps the screenshots in `artifacts/browser`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.cards import score_card
from tests.support.run_directories import make_run
from tests.support.search_records import write_search

for package in ("playwright", "matplotlib", "jinja2"):
    pytest.importorskip(package, reason="needs the extra dev: make test-browser")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed: make test-browser"),
]

MARKUP = "<script>alert(1)</script>"
HOSTILE = [MARKUP, '"><img src=x onerror=alert(1)>', "\x1b[31mred", "long" * 100, r"$\frac{$"]
PHONE, DESKTOP = 390, 1280


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def screenshots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    chosen = os.environ.get("RL_TRAINING_SCREENSHOTS")
    directory = Path(chosen) if chosen else tmp_path_factory.mktemp("screenshots")
    directory.mkdir(parents=True, exist_ok=True)
    return directory


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    from rl_training.reports.card_page import write_card
    from rl_training.reports.comparison import compare_runs
    from rl_training.reports.report_page import write_report
    from rl_training.reports.search_page import write_search_page

    directory = tmp_path_factory.mktemp("pages")
    for seed in range(3):
        for algo, level in (("sac", -150.0), ("td3", -220.0), ("ddpg", -400.0)):
            make_run(directory / "runs", algo, seed, level=level, learning_rate=abs(level) / 1e6)
    for number, text in enumerate(HOSTILE):
        names = tuple(f"train/{name}" for name in HOSTILE)
        hostile = make_run(directory / "hostile", "td3", number, names=names, note=text)
        config = hostile / "config.yaml"
        config.write_text(config.read_text().replace("algo: td3", 'algo: "<b>td3</b>"'))
    make_run(directory / "hostile", "sac", 0, finished=False, warnings=(MARKUP,))
    (directory / "hostile" / "broken").mkdir()
    (directory / "hostile" / "broken" / "config.yaml").write_text("algo: [")
    strange = score_card(verdict="do not trust this", reasons=HOSTILE, notes=HOSTILE)
    strange["policy"] = {**strange["policy"], "algo": MARKUP, "path": "long" * 100}
    strange["pictures"] = {
        "actions": {"kind": "discrete", "log": [5, 3, 9], "policy": [0, 1, 16]},
        "policy_values": [float("nan"), 1.0],
    }
    for entry, text in zip(strange["estimates"], HOSTILE, strict=False):
        entry["label"] = text
    return {
        "report": write_report(compare_runs([directory / "runs"]), directory / "report.html"),
        "hostile-report": write_report(
            compare_runs([directory / "hostile"]), directory / "hostile.html"
        ),
        "card": write_card(score_card(), directory / "card.html"),
        "hostile-card": write_card(strange, directory / "hostile-card.html"),
        "search": write_search_page(write_search(directory / "search"), directory / "search.html"),
        "hostile-search": write_search_page(
            write_search(directory / "hostile-search", texts=HOSTILE), directory / "hostile-s.html"
        ),
    }


class Visit:
    """One page in one window, with everything that it asked for or complained about."""

    def __init__(self, browser: Any, path: Path, width: int, scheme: str) -> None:
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme
        )
        self.page = self.context.new_page()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        self.page.goto(path.as_uri())


# boxes of the charts that are shown, of the marks in them, and texts that stick out of them
CHARTS = """() => [...document.querySelectorAll('svg.chart')].filter(svg => svg.checkVisibility()).map(svg => {
    const box = svg.getBoundingClientRect();
    const drawn = [...svg.querySelectorAll('path, use')].filter(mark => {
        const {width, height} = mark.getBoundingClientRect();
        return width + height > 0;
    });
    const cut = [...svg.querySelectorAll('text')].filter(text => {
        const edge = text.getBoundingClientRect();
        return edge.left < box.left - 1 || edge.right > box.right + 1 || edge.bottom > box.bottom + 1;
    });
    return {width: box.width, height: box.height, marks: drawn.length, cut: cut.map(text => text.textContent)};
})"""


@pytest.mark.parametrize(
    ("width", "scheme"),
    [(PHONE, "light"), (PHONE, "dark"), (DESKTOP, "light"), (DESKTOP, "dark")],
)
@pytest.mark.parametrize("name", ["report", "card", "search"])
def test_a_page_is_drawn_fits_its_window_and_asks_for_nothing(
    browser: Any, pages: dict[str, Path], screenshots: Path, name: str, width: int, scheme: str
) -> None:
    check(browser, pages[name], screenshots / f"{name}-{width}-{scheme}.png", width, scheme)


@pytest.mark.parametrize("width", [PHONE, DESKTOP])
@pytest.mark.parametrize("name", ["hostile-report", "hostile-card", "hostile-search"])
def test_hostile_labels_are_text_and_break_no_layout(
    browser: Any, pages: dict[str, Path], screenshots: Path, name: str, width: int
) -> None:
    text = check(browser, pages[name], screenshots / f"{name}-{width}.png", width, "light")
    assert MARKUP in text


def check(browser: Any, path: Path, shot: Path, width: int, scheme: str) -> str:
    """Check one page in one window, keep a screenshot and return the text that is shown."""
    visit = Visit(browser, path, width, scheme)
    charts = visit.page.evaluate(CHARTS)
    assert len(charts) >= 3
    for chart in charts:
        assert chart["width"] > 250
        assert chart["height"] > 50
        assert chart["marks"] > 3
        assert chart["cut"] == []
    widths = visit.page.evaluate(
        "() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert widths[0] <= widths[1] == width
    assert visit.page.evaluate("() => document.scripts.length + document.images.length") == 0
    assert visit.requests == [path.as_uri()]
    assert visit.complaints == []
    visit.page.screenshot(path=shot, full_page=True)
    text: str = visit.page.inner_text("body")
    visit.context.close()
    return text


def test_a_metric_is_shown_when_it_is_chosen_and_hidden_again(
    browser: Any, pages: dict[str, Path]
) -> None:
    visit = Visit(browser, pages["report"], DESKTOP, "light")
    label = visit.page.locator("label", has_text="train/loss_5")
    chart = visit.page.locator("svg[aria-label='train/loss_5']")
    assert not chart.is_visible()
    label.click()
    assert chart.is_visible()
    label.click()
    assert not chart.is_visible()
    visit.context.close()


@pytest.mark.parametrize("name", ["report", "card", "search"])
def test_paper_is_white_also_for_those_who_like_it_dark_and_holds_every_column(
    browser: Any, pages: dict[str, Path], screenshots: Path, name: str
) -> None:
    visit = Visit(browser, pages[name], DESKTOP, "dark")
    colour = "() => getComputedStyle(document.body).backgroundColor"
    assert visit.page.evaluate(colour) == "rgb(20, 24, 29)"
    visit.page.emulate_media(media="print")
    assert visit.page.evaluate(colour) == "rgb(255, 255, 255)"
    visit.page.set_viewport_size({"width": 688, "height": 1000})  # A4 without margins
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 688
    visit.page.pdf(path=screenshots / f"{name}.pdf", format="A4")
    visit.context.close()
