"""Figures as inline SVG for a page, and as SVG and PNG files for a paper.

On a page, colours are CSS variables, so that one drawing serves light, dark and paper, and text stays text. In files,
colours are those of the light theme and text is outlines, so that no font is missing.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rl_training.config import MissingExtraError, visible
from rl_training.files import written_aside

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 4.8  # inches of a figure; 72 units each, so that text of 9 units is readable on a phone
FONT = 9.0
# Okabe and Ito's palette for all kinds of colour vision, without its yellow, which white paper hides
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7b5aa6", "#8c6d31")
INK, MUTED, GRID = "#1c2530", "#5d6873", "#dfe3e8"
DARK = ("#5aaeea", "#ff8f4d", "#35c79b", "#e6a3c8", "#f5b83d", "#9ad4f8", "#b79fe0", "#c9ab6a")
_VARIABLES = {
    **{colour: f"var(--c{number})" for number, colour in enumerate(PALETTE)},
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    GRID: "var(--grid)",
}
_STYLE: dict[str, Any] = {
    "text.parse_math": False,  # a dollar sign in a label is a dollar sign
    "text.usetex": False,
    "font.size": FONT,
    "font.family": "DejaVu Sans",  # comes with matplotlib, so widths are the same on every machine
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelsize": FONT - 1,
    "ytick.labelsize": FONT - 1,
    "lines.linewidth": 1.5,
    "legend.frameon": False,
    "legend.fontsize": FONT - 1,
    "path.simplify": True,
}


class Key(NamedTuple):
    """Entry of a legend; `colour` is a number of the palette, or -1 for grey."""

    label: str
    colour: int


@dataclass(frozen=True)
class Chart:
    """A drawn figure, with the legend that the page or the file puts beside it."""

    title: str
    figure: Figure
    legend: tuple[Key, ...] = ()

    def inline(self, name: str) -> str:
        """Return the SVG element; `name` makes its ids unique on the page."""
        return _inline(_rendered(self.figure, name), name, self.title)

    def write(self, stem: Path) -> list[Path]:
        """Write `<stem>.svg` and `<stem>.png`, legend and white background included."""
        if self.legend:
            self._draw_legend()
        paths = [stem.with_name(f"{stem.name}.{kind}") for kind in ("svg", "png")]
        for path in paths:
            with written_aside(path) as aside, _styled({"svg.hashsalt": stem.name}):
                self.figure.savefig(
                    aside,
                    format=path.suffix[1:],
                    facecolor="white",
                    dpi=200,
                    bbox_inches="tight",
                    pad_inches=0.05,
                    metadata=_without_date(path.suffix),
                )
        return paths

    def _draw_legend(self) -> None:
        from matplotlib.lines import Line2D

        with _styled():
            handles = [Line2D([], [], color=colour_of(key.colour), lw=2) for key in self.legend]
            self.figure.legend(
                handles,
                [shown(key.label) for key in self.legend],
                loc="upper center",
                bbox_to_anchor=(0.5, 0.0),
                ncols=min(3, len(handles)),
            )


def colour_of(number: int) -> str:
    """Colour of a series; those beyond the palette are grey."""
    return PALETTE[number] if 0 <= number < len(PALETTE) else MUTED


def shown(label: str, limit: int = 48) -> str:
    """Cut a label in its middle, where names of runs differ least, and show control characters."""
    text = " ".join(visible(label).split())
    if len(text) <= limit:
        return text
    return f"{text[: (limit - 1) // 2]}…{text[-(limit // 2) :]}"


def number_text(value: float, _: object = None) -> str:
    """Write a number with thousands separators and a minus sign."""
    return f"{value:,.10g}".replace("-", "−")


@contextmanager
def drawing(
    height: float, rows: int = 1, *, share_y: bool = False
) -> Iterator[tuple[Figure, list[Axes]]]:
    """Context with an empty figure of `rows` axes above each other, which share their x axis."""
    with _styled():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(WIDTH, height))
        axes = figure.subplots(rows, 1, sharex=True, sharey=share_y, squeeze=False)[:, 0]
        yield figure, list(axes)
        fit(figure, list(axes))


def fit(figure: Figure, axes: Sequence[Axes]) -> None:
    """Set margins from the lengths of labels; a layout engine would draw every figure twice."""
    width, height = figure.get_size_inches() * 72
    labels = max((text_width(text) for axis in axes for text in _tick_texts(axis)), default=1)
    titled = any(axis.get_ylabel() for axis in axes)
    left = labels + 8 + (17 if titled else 0)
    bottom = 34 if axes[-1].get_xlabel() else 20
    top = 20 if axes[0].get_title(loc="left") else 8
    figure.subplots_adjust(
        left=left / width,
        right=1 - 14 / width,
        bottom=bottom / height,
        top=1 - top / height,
        hspace=0.5,
    )
    if titled:
        for axis in axes:
            axis.yaxis.set_label_coords(-(left - 13) / (width - left - 14), 0.5)


def text_width(text: str) -> float:
    """Measure the longest line of a text, in units of a figure."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(family="DejaVu Sans", size=FONT)
    measure = text_to_path.get_text_width_height_descent
    with _any_letter():
        return max(measure(line, font, False)[0] for line in text.split("\n"))


def _tick_texts(axes: Axes) -> list[str]:
    fixed = [tick.get_text() for tick in axes.get_yticklabels()]
    if any(fixed):
        return fixed
    low, high = sorted(axes.get_ylim())
    ticks = [tick for tick in axes.get_yticks() if low <= tick <= high]
    return axes.yaxis.get_major_formatter().format_ticks(ticks)


@contextmanager
def _styled(more: dict[str, Any] | None = None) -> Iterator[None]:
    """Context with our settings over matplotlib's defaults, whatever the user's are."""
    try:
        from matplotlib import style
    except ImportError:
        raise MissingExtraError("a chart", "matplotlib", "report") from None
    with style.context(["default", {**_STYLE, **(more or {})}]), _any_letter():
        yield


@contextmanager
def _any_letter() -> Iterator[None]:
    """Context without warnings about letters that matplotlib's font lacks; browsers have other fonts."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def _without_date(suffix: str) -> dict[str, None]:
    if suffix == ".png":
        return {"Software": None}
    return dict.fromkeys(("Date", "Creator", "Format", "Type"))


def _rendered(figure: Figure, name: str) -> str:
    buffer = io.BytesIO()
    with _styled({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", transparent=True, metadata=_without_date(".svg"))
    return buffer.getvalue().decode()


_TAG = re.compile(r"<[a-z][^>]*>")
_FONT = re.compile(r"font: (?:\d+ )?([\d.]+px)[^;\"]*")
_COLOUR = re.compile("|".join(_VARIABLES))
_PATH = re.compile(r' d="([^"]*)"')
_FRACTION = re.compile(r"-?\d+\.\d+")
_LATER_LINES = re.compile(r"(?<=\d) ?L ?(?=-?\d)")


def _inline(svg: str, name: str, title: str) -> str:
    """Make a file of matplotlib an element of a page: small, with unique ids and the colours of the page."""
    body = svg[svg.index("<svg") :]
    box = body[body.index('viewBox="') :].split('"', 2)[1]
    body = body[body.index(">") + 1 :]
    # a style element would hold for the whole page, which has its rules itself
    body = re.sub(r"<style.*?</style>|<metadata>.*?</metadata>|<!--.*?-->", "", body, flags=re.S)
    referenced = {*re.findall(r'(?:href="#|url\(#)([^")]+)', body)}
    names = {old: f"{name}-{number}" for number, old in enumerate(sorted(referenced))}
    body = _TAG.sub(lambda tag: _smaller(tag[0], names), body)
    body = re.sub(r">\s+<", "><", body)
    body = re.sub(r"<defs></defs>", "", body).strip()
    label = escape(visible(title))
    return f'<svg class="chart" viewBox="{box}" role="img" aria-label="{label}">{body}'


def _smaller(tag: str, names: dict[str, str]) -> str:
    def renamed(match: re.Match[str]) -> str:
        return f' id="{names[match[1]]}"' if match[1] in names else ""

    tag = re.sub(r' id="([^"]*)"', renamed, tag)
    tag = re.sub(r"#([\w-]+)", lambda match: f"#{names.get(match[1], match[1])}", tag)
    tag = _COLOUR.sub(lambda match: _VARIABLES[match[0]], tag)
    tag = _FONT.sub(r"font-size: \1", tag)
    tag = tag.replace("xlink:href", "href")
    return _PATH.sub(lambda match: f' d="{_shorter(match[1])}"', tag)


def _shorter(path: str) -> str:
    """Round to hundredths, and leave out the letters of repeated lines, as SVG allows."""
    rounded = _FRACTION.sub(lambda match: f"{float(match[0]):.2f}".rstrip("0").rstrip("."), path)
    return _LATER_LINES.sub(" ", " ".join(rounded.split()))
