"""Charts: the same bytes each time, whatever the values and labels are."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="needs the extra report")

from rl_training.reports.pages import charts
from rl_training.reports.pages.charts import IntervalRow
from rl_training.reports.pages.drawing import PALETTE, Chart
from rl_training.reports.pages.points import Line, shape

AXES = {"x_title": "step", "y_title": "return"}
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    r"$\frac{$",
    "\x1b[31mred\x07",
    "_hidden",
    "x" * 10_000,
    "日本語 🙂",
    "-->",
    "#0072b2",
    "",
]


def parse(chart: Chart, name: str = "c") -> ElementTree.Element:
    return ElementTree.fromstring(chart.inline(name))


def texts(chart: Chart) -> list[str]:
    return [element.text or "" for element in parse(chart).iter("text")]


def test_a_chart_has_the_same_bytes_each_time() -> None:
    def drawn() -> str:
        x = np.arange(500.0)
        return charts.lines("t", [Line("a", x, np.sin(x), x - 1, x + 1)], **AXES).inline("c1")

    assert drawn() == drawn()


def test_charts_of_one_page_share_no_id_and_use_no_id_of_another() -> None:
    chart = charts.scatter("t", [1, 2], [3, 4], **AXES)
    ids = {}
    for name in ("one", "two"):
        svg = chart.inline(name)
        ids[name] = {*re.findall(r' id="([^"]+)"', svg)}
        assert {*re.findall(r'(?:href="#|url\(#)([^")]+)', svg)} == ids[name]
    assert ids["one"]
    assert not ids["one"] & ids["two"]


def test_colours_on_a_page_are_variables_so_that_dark_and_print_can_set_them() -> None:
    lines = [Line(str(number), [0, 1], [number, 2]) for number in range(20)]
    svg = charts.lines("t", lines, **AXES).inline("c")
    assert not re.search(r"(fill|stroke): #", svg)
    assert {f"var(--c{number})" for number in range(len(PALETTE))} <= {
        *re.findall(r"var\(--c\d\)", svg)
    }


@pytest.mark.filterwarnings("error")
def test_labels_are_text_whatever_they_hold() -> None:
    rows = [IntervalRow(label, 1.0, 0.5, 2.0, [1.0]) for label in HOSTILE]
    ones = [(label, [1.0] * len(HOSTILE)) for label in HOSTILE[:3]]
    lines = [Line(label, [1, 2], [3, 4]) for label in HOSTILE]
    for chart in (
        charts.intervals(HOSTILE[0], rows, x_title=HOSTILE[1]),
        charts.lines(HOSTILE[1], lines, x_title=HOSTILE[2], y_title=HOSTILE[3]),
        charts.histograms(
            HOSTILE[3], [(label, [1.0]) for label in HOSTILE[3:6]], x_title=HOSTILE[5]
        ),
        charts.grouped_bars(HOSTILE[4], HOSTILE, ones, x_title=HOSTILE[7], y_title=HOSTILE[6]),
        charts.shares(HOSTILE[5], HOSTILE, ones),
    ):
        assert {element.tag for element in parse(chart).iter()} <= {
            "svg", "g", "path", "text", "tspan", "defs", "clipPath", "rect", "use",
        }  # fmt: skip
        assert max(map(len, texts(chart))) < 100


def test_a_label_that_looks_like_a_colour_stays_as_it_is() -> None:
    assert "#0072b2" in texts(charts.intervals("t", [IntervalRow("#0072b2", 1.0)], x_title="x"))


VALUES = {
    "empty": [],
    "one": [5.0],
    "nan": [np.nan, np.nan],
    "huge": [np.inf, 1e308, -1e308, 1.0, np.nan],
    "tiny": [1e-300, 1e-300, 1e-300],
}


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize(
    "draw",
    [
        lambda v: charts.lines("t", [Line("a", range(len(v)), v, v, v)], **AXES),
        lambda v: charts.lines("t", [Line("a", v, v)], log_scale=True, **AXES),
        lambda v: charts.intervals("t", [IntervalRow("a", *[*v, 1, 1, 1][:3], v)], x_title="x"),
        lambda v: charts.histograms("t", [("a", v), ("b", [])], x_title="x"),
        lambda v: charts.grouped_bars("t", ["x"] * len(v), [("a", v)], **AXES),
        lambda v: charts.shares("t", ["x"] * len(v), [("a", v)]),
        lambda v: charts.scatter("t", v, v, diagonal=True, **AXES),
    ],
)
@pytest.mark.filterwarnings("error")
def test_odd_values_break_no_chart(draw: Callable[[list[float]], Chart], values: list[float]) -> None:  # fmt: skip
    assert "nan" not in draw(values).inline("c").lower()


def test_an_empty_chart_says_so() -> None:
    assert "no values" in texts(charts.lines("t", [], **AXES))


def test_long_lines_lose_points_and_keep_their_peaks() -> None:
    values = np.zeros(100_003)
    values[[777, 50_001, 100_001]] = [9.0, -9.0, 5.0]
    chosen = shape(values, 200)
    assert len(chosen) <= 200
    assert {777, 50_001, 100_001, 0, 100_002} <= {*chosen.tolist()}
    noisy = np.random.default_rng(0).normal(size=(50, 2_000))
    lines = [Line(str(number), np.arange(2_000), row) for number, row in enumerate(noisy)]
    assert len(charts.lines("t", lines, **AXES).inline("c")) < 200_000


def test_series_beyond_the_palette_are_grey_and_counted() -> None:
    lines = [Line(f"run {number}", [0, 1], [number, 2]) for number in range(30)]
    legend = charts.lines("t", lines, **AXES).legend
    assert [key.label for key in legend[-2:]] == ["run 7", "22 others"]
    assert legend[-1].colour == -1


def test_an_empty_series_keeps_its_colour_and_is_not_in_the_legend() -> None:
    lines = [Line("a", [], []), Line("b", [0, 1], [1, 2])]
    chart = charts.lines("t", lines, **AXES)
    assert [tuple(key) for key in chart.legend] == [("b", 1)]
    assert "var(--c1)" in chart.inline("c")


def test_numbers_have_thousands_separators() -> None:
    chart = charts.lines("t", [Line("a", [0, 1_000_000], [-5_000, 5_000])], **AXES)
    assert {"250,000", "1,000,000", "−4,000"} <= {*texts(chart)}


def test_files_for_a_paper_have_a_legend_and_need_no_font(tmp_path: Path) -> None:
    def write(directory: Path) -> list[Path]:
        directory.mkdir()
        lines = [Line("first", [0, 1], [1, 2]), Line("second", [0, 1], [2, 1])]
        return charts.lines("t", lines, **AXES).write(directory / "curve")

    svg, png = write(tmp_path / "a")
    assert png.read_bytes()[:4] == b"\x89PNG"
    assert "<text" not in svg.read_text()
    assert "first" in svg.read_text()  # as a comment beside its outlines
    for path, again in zip((svg, png), write(tmp_path / "b"), strict=True):
        assert path.read_bytes() == again.read_bytes()


def test_drawing_leaves_the_settings_of_matplotlib_alone() -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    charts.scatter("t", [1], [1], **AXES).inline("c")
    assert dict(matplotlib.rcParams) == before


def test_a_logarithmic_axis_has_plain_numbers() -> None:
    line = Line("a", np.arange(5.0), 10.0 ** np.arange(-3, 2))
    shown = texts(charts.lines("t", [line], **AXES, log_scale=True))
    assert {"0.001", "0.1", "10"} <= {*shown}
    assert not any("$" in text for text in shown)
