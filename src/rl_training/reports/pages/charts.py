"""Charts from plain labels and arrays; they know nothing of runs or policies.

Values that are not finite are left out, and so are points that a line does not need to keep its shape. An empty series
keeps its colour, so that a label has one colour on all charts of a page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rl_training.reports.pages.drawing import (
    FONT,
    INK,
    MUTED,
    PALETTE,
    Chart,
    Key,
    colour_of,
    drawing,
    number_text,
    shown,
    text_width,
)
from rl_training.reports.pages.points import (
    LARGEST,
    Line,
    Values,
    finite,
    finite_line,
    number_or_nan,
    sizes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_POINTS = 6_000  # of all lines of one chart
_DOTS = 400  # of one row or scatter
_BARS = 30  # of one histogram
_LABELS = 140  # units of width, of 346


@dataclass(frozen=True)
class IntervalRow:
    """A value with its interval, and the points that it comes from; its colour is that of its row unless given."""

    label: str
    value: float | None
    low: float | None = None
    high: float | None = None
    points: Values = ()
    colour: int | None = None


def lines(
    title: str,
    series: Sequence[Line],
    *,
    x_title: str,
    y_title: str,
    y_limits: tuple[float, float] | None = None,
    log_scale: bool = False,
) -> Chart:
    """Lines with bands; those beyond the palette are thin and grey, behind the others."""
    budget = max(20, min(400, _POINTS // max(len(series), 1)))
    arrays = {number: finite_line(line, budget, log_scale) for number, line in enumerate(series)}
    drawn = [number for number, (x, *_) in arrays.items() if x.size]
    with drawing(2.9) as (figure, (axes,)):
        for number in drawn:
            if number < len(PALETTE):
                _draw_line(axes, number, *arrays[number])
        _draw_others(axes, [arrays[number] for number in drawn if number >= len(PALETTE)])
        axes.set_xlabel(shown(x_title))
        axes.set_ylabel(shown(y_title, 40))
        if log_scale and drawn:
            axes.set_yscale("log")
            # matplotlib would write powers as formulas, which our labels are not
            axes.yaxis.set_major_formatter(number_text)
            axes.yaxis.set_minor_formatter("")
        if y_limits:
            axes.set_ylim(*y_limits)
        _finish(axes, bool(drawn), values_on_y=not log_scale)
    return Chart(title, figure, _legend([series[number].label for number in drawn], drawn))


def _draw_line(axes: Axes, number: int, x: Any, y: Any, low: Any, high: Any) -> None:
    colour = colour_of(number)
    axes.plot(x, y, marker="o" if x.size == 1 else "", markersize=4, color=colour, zorder=3)
    banded = np.isfinite(low) & np.isfinite(high)
    if banded.any():
        band: dict[str, Any] = {"color": colour, "alpha": 0.18, "linewidth": 0, "zorder": 1}
        axes.fill_between(x, low, high, where=banded, **band)


def _draw_others(axes: Axes, several: Sequence[tuple[NDArray[Any], ...]]) -> None:
    """Draw lines without a colour of their own as one path with gaps, which is fast and small."""
    if several:
        x, y = (
            np.concatenate([part for arrays in several for part in (arrays[axis], [np.nan])])
            for axis in (0, 1)
        )
        axes.plot(x, y, color=MUTED, linewidth=0.7, alpha=0.5, zorder=2)


def intervals(
    title: str,
    rows: Sequence[IntervalRow],
    *,
    x_title: str,
    reference: float | None = None,
) -> Chart:
    """Points with whiskers, one row each, and the values that they come from as dots below."""
    labels = [_two_lines(row.label) for row in rows]
    height = 0.44 if any("\n" in label for label in labels) else 0.34
    with drawing(0.75 + height * max(len(rows), 1)) as (figure, (axes,)):
        for position, row in enumerate(rows):
            colour = colour_of(position if row.colour is None else row.colour)
            dots = finite(row.points)[:_DOTS]
            if dots.size:
                below = np.full(dots.size, position + 0.24)
                axes.plot(dots, below, "o", ms=3.2, mew=0, color=colour, alpha=0.55, zorder=2)
            low, high = (number_or_nan(value) for value in (row.low, row.high))
            axes.plot([low, high], [position] * 2, color=colour, lw=2, solid_capstyle="butt")
            axes.plot([number_or_nan(row.value)], [position], "o", ms=6, color=colour, zorder=4)
        if reference is not None:
            axes.axvline(reference, color=INK, lw=0.9, ls=(0, (4, 3)), zorder=1)
        axes.set_ylim(max(len(rows), 1) - 0.4, -0.6)
        axes.set_yticks(range(len(rows)), labels)
        axes.tick_params(axis="y", length=0, labelcolor=INK, labelsize=FONT)
        axes.grid(visible=False, axis="y")
        axes.spines["left"].set_visible(False)
        axes.set_xlabel(shown(x_title))
        _finish(axes, any(row.value is not None for row in rows), values_on_y=False)
    return Chart(title, figure)


def histograms(
    title: str, samples: Sequence[tuple[str, Values]], *, x_title: str, means: bool = True
) -> Chart:
    """Histograms above each other on one axis: share per bar, and the mean as a dashed line."""
    arrays = [finite(values) for _, values in samples]
    everything = np.concatenate([np.empty(0), *arrays])
    edges = np.histogram_bin_edges(everything, bins=_bars(everything)) if everything.size else None
    rows = max(len(samples), 1)
    with drawing(0.5 + 1.15 * rows, rows, share_y=True) as (figure, panels):
        for number, (axes, (label, _), values) in enumerate(
            zip(panels, samples, arrays, strict=False)
        ):
            heading = shown(label, 40)
            if edges is not None and values.size:
                counts, _ = np.histogram(values, bins=edges)
                bars: dict[str, Any] = {"fill": True, "color": colour_of(number), "alpha": 0.75}
                axes.stairs(counts / values.size, edges, **bars)
            if means and values.size:
                mean = float(values.mean())
                axes.axvline(mean, color=INK, lw=1.1, ls=(0, (4, 3)))
                heading += f" · mean {mean:,.4g}".replace("-", "−")
            axes.set_title(heading, loc="left", fontsize=FONT, color=INK, pad=4)
            _finish(axes, bool(values.size), percent=True)
        panels[-1].set_xlabel(shown(x_title))
    return Chart(title, figure)


def grouped_bars(
    title: str,
    categories: Sequence[str],
    samples: Sequence[tuple[str, Values]],
    *,
    x_title: str,
    y_title: str,
) -> Chart:
    """Bars side by side for each category, as shares of the sum of each sample."""
    with drawing(2.4) as (figure, (axes,)):
        width = 0.8 / max(len(samples), 1)
        for number, (_, values) in enumerate(samples):
            heights = sizes(values)[: len(categories)]
            offsets = np.arange(heights.size) + (number - (len(samples) - 1) / 2) * width
            shares = heights / (heights.sum() or 1.0)
            axes.bar(offsets, shares, width * 0.94, color=colour_of(number))
        step = max(1, len(categories) // 12)
        ticks = range(0, len(categories), step)
        axes.set_xticks(ticks, [shown(categories[tick], 12) for tick in ticks])
        axes.grid(visible=False, axis="x")
        axes.set_xlabel(shown(x_title))
        axes.set_ylabel(shown(y_title, 40))
        _finish(axes, bool(categories), values_on_x=False, percent=True)
    return Chart(title, figure, _legend([label for label, _ in samples]))


def shares(title: str, labels: Sequence[str], parts: Sequence[tuple[str, Values]]) -> Chart:
    """Stacked bars that show how a whole divides into parts, one bar per label."""
    table = np.array([sizes(values) for _, values in parts])
    table = table.reshape(len(parts), len(labels))
    whole = table.sum(axis=0)
    table = table / np.where(whole > 0, whole, 1.0)
    with drawing(0.6 + 0.4 * max(len(labels), 1)) as (figure, (axes,)):
        starts = np.zeros(len(labels))
        for number, lengths in enumerate(table):
            colour = colour_of(number)
            axes.barh(range(len(labels)), lengths, 0.62, left=starts, color=colour)
            starts += lengths
        axes.set_ylim(max(len(labels), 1) - 0.5, -0.5)
        axes.set_xlim(0, 1)
        axes.set_yticks(range(len(labels)), [_two_lines(label) for label in labels])
        axes.tick_params(axis="y", length=0, labelcolor=INK, labelsize=FONT)
        axes.grid(visible=False, axis="y")
        axes.spines["left"].set_visible(False)
        axes.xaxis.set_major_formatter(_percent)
    return Chart(title, figure, _legend([label for label, _ in parts]))


def scatter(
    title: str, x: Values, y: Values, *, x_title: str, y_title: str, diagonal: bool = False
) -> Chart:
    """Points; with `diagonal` the line on which both values are equal."""
    size = min(len(x), len(y))
    points = np.array([np.asarray(x[:size], dtype=float), np.asarray(y[:size], dtype=float)])
    points = points[:, (np.abs(points) < LARGEST).all(axis=0)]
    if points.shape[1] > _DOTS:
        points = points[:, np.linspace(0, points.shape[1] - 1, _DOTS).astype(int)]
    with drawing(2.9) as (figure, (axes,)):
        axes.plot(*points, "o", ms=3.5, mew=0, color=PALETTE[0], alpha=0.6)
        if diagonal and points.size:
            axes.axline((float(points.min()),) * 2, slope=1, color=MUTED, lw=0.9, ls=(0, (4, 3)))
        axes.set_xlabel(shown(x_title))
        axes.set_ylabel(shown(y_title, 40))
        _finish(axes, bool(points.size))
    return Chart(title, figure)


# -- parts ---------------------------------------------------------------------------------------


def _finish(
    axes: Axes,
    filled: bool,
    *,
    values_on_x: bool = True,
    values_on_y: bool = True,
    percent: bool = False,
) -> None:
    from matplotlib.ticker import MaxNLocator

    if values_on_x:
        axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
        axes.xaxis.set_major_formatter(number_text)
    if values_on_y:
        axes.yaxis.set_major_locator(MaxNLocator(4 if percent else 6, steps=[1, 2, 2.5, 5, 10]))
        axes.yaxis.set_major_formatter(_percent if percent else number_text)
    if not filled:
        axes.text(0.5, 0.5, "no values", transform=axes.transAxes, ha="center", color=MUTED)


def _percent(value: float, _: object = None) -> str:
    return f"{100 * value:.3g}\u00a0%"


def _two_lines(label: str) -> str:
    """Break a label into at most two lines that leave room for the chart; a line break in it stays."""
    parts = label.split("\n")[:2]
    for letters in (24, 18, 12):
        if len(parts) == 2:
            lines = [shown(part, letters) for part in parts]
        else:
            text = shown(label, 2 * letters - 2)
            lines = wrap(text, letters, max_lines=2, placeholder="…")
        if text_width("\n".join(lines)) < _LABELS:
            break
    return "\n".join(lines)


def _legend(labels: Sequence[str], colours: Sequence[int] | None = None) -> tuple[Key, ...]:
    numbers = range(len(labels)) if colours is None else colours
    named = [Key(label, n) for label, n in zip(labels, numbers, strict=True) if n < len(PALETTE)]
    others = len(labels) - len(named)
    return (*named, *([Key(f"{others:,} others", -1)] if others else []))


def _bars(values: NDArray[Any]) -> int:
    return int(np.clip(np.sqrt(values.size), 5, _BARS))
