"""Charts of a search: history, parallel coordinates, slices, importance, and its two scores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rl_training.config import dump_yaml_value
from rl_training.reports.pages import charts
from rl_training.reports.pages.charts import IntervalRow
from rl_training.reports.pages.drawing import (
    FONT,
    INK,
    MUTED,
    PALETTE,
    Chart,
    Key,
    drawing,
    number_text,
    shown,
)
from rl_training.reports.pages.points import LARGEST
from rl_training.runs.search_record import SearchRecord, SearchTrial

MOST_OPTIONS = 16  # that are drawn
_MOST_LINES = 400  # of parallel coordinates
_MOST_CATEGORIES = 12
_COMPLETE, _GOOD, _PRUNED = 0, 1, -1  # colours


@dataclass(frozen=True)
class Scale:
    """Values of one option between 0 and 1: logarithmic, linear, or categories in their order."""

    key: str
    low: float
    high: float
    is_log: bool = False
    categories: tuple[str, ...] = ()

    @classmethod
    def of(cls, key: str, axis: Any, values: Sequence[Any]) -> Scale:
        """Choose the scale by what trials have, so that a start outside of the space is shown, too."""
        numbers = [value for value in values if _is_number(value)]
        listed = _listed(axis)
        if listed or len(numbers) < len(values) or not numbers:
            used = {dump_yaml_value(value): value for value in values}
            labels = tuple(label for label in map(dump_yaml_value, listed) if label in used)
            labels += tuple(label for label in used if label not in labels)
            if len(numbers) == len(values):
                labels = tuple(sorted(labels, key=lambda label: float(used[label])))
            return cls(key, 0.0, max(1.0, len(labels) - 1.0), categories=labels)
        is_log = isinstance(axis, Mapping) and any(str(kind).startswith("log_") for kind in axis)
        is_log = is_log and min(numbers) > 0
        return cls(key, float(min(numbers)), float(max(numbers)), is_log)

    def place(self, value: Any) -> float:
        """Return the position of a value, from 0 to 1."""
        if self.categories:
            return self.categories.index(dump_yaml_value(value)) / self.high
        if self.high == self.low:
            return 0.5
        low, high, at = (self._raised(number) for number in (self.low, self.high, value))
        return (at - low) / (high - low)

    def _raised(self, number: float) -> float:
        return math.log10(number) if self.is_log else float(number)

    @property
    def ends(self) -> tuple[str, str]:
        """Return the texts at both ends."""
        if self.categories:
            return self.categories[0], self.categories[-1] if len(self.categories) > 1 else ""
        return f"{self.low:.3g}", f"{self.high:.3g}"


class SearchCharts:
    """Charts of one search."""

    def __init__(self, record: SearchRecord) -> None:
        self._record = record
        self._metric = f"{record.metric}{' (lower is better)' if record.mode == 'min' else ''}"
        self._complete = [t for t in record.trials if t.state == "complete" and _is_drawable(t)]
        self._pruned = [t for t in record.trials if t.state == "pruned" and _is_drawable(t)]
        self._failed = [t for t in record.trials if t.state == "failed"]
        sign = -1.0 if record.mode == "max" else 1.0
        ranked = sorted(self._complete, key=lambda t: sign * (t.value or 0.0))
        self._good = {t.number for t in ranked[: max(1, len(ranked) // 10)]}

    def scores(self) -> Chart | None:
        """Score of the best trial as the search saw it, and on fresh seeds, beside that of the start."""
        best, fresh = self._record.best, self._record.fresh
        if best is None:
            return None
        start = self._record.trials[0]
        rows = []
        if start.state == "complete" and start.number != best.number:
            rows.append(IntervalRow("start", start.value, points=[*start.seeds.values()], colour=2))
        rows.append(
            IntervalRow(
                "best, chosen by this score", best.value, points=[*best.seeds.values()], colour=0
            )
        )
        if fresh is not None and fresh.iqm is not None:
            points = [*fresh.seeds.values()]
            rows.append(
                IntervalRow(
                    "best, on fresh seeds", fresh.iqm, fresh.low, fresh.high, points, colour=1
                )
            )
        return charts.intervals("Optimistic and honest score", rows, x_title=self._metric)

    def history(self) -> Chart:
        """Value of every trial in order, and the best so far."""
        with drawing(3.0) as (figure, (axes,)):
            for trials, colour, marker in (
                (self._pruned, MUTED, "v"),
                (self._complete, PALETTE[0], "o"),
            ):
                x = [trial.number for trial in trials]
                axes.plot(x, _values(trials), marker, ms=4, mew=0, color=colour, alpha=0.75)
            low = min((t.value or 0.0 for t in (*self._complete, *self._pruned)), default=0.0)
            axes.plot(
                [t.number for t in self._failed],
                [low] * len(self._failed),
                "x",
                ms=5,
                color=PALETTE[3],
            )
            numbers, best = self._best_so_far()
            axes.plot(numbers, best, color=PALETTE[1], drawstyle="steps-post")
            axes.set_xlabel("trial")
            axes.set_ylabel(shown(self._metric, 40))
            _ticks(axes)
        keys = [Key("complete", 0), Key("best so far", 1)]
        keys += [Key("ended early (triangles)", -1)] if self._pruned else []
        keys += [Key("failed (crosses, at the bottom)", 3)] if self._failed else []
        return Chart("History", figure, tuple(keys))

    def parallel(self) -> Chart | None:
        """Parallel coordinates: a line for each trial from option to option, down to its value."""
        scales = self._scales()
        drawn = [*self._pruned, *self._complete][-_MOST_LINES:]
        if not scales or not self._complete:
            return None
        values = [t.value for t in drawn if t.value is not None]
        scales = [*scales, Scale(self._record.metric, min(values), max(values))]
        # good trials lie above the others
        drawn.sort(key=lambda t: (t.state == "complete", t.number in self._good))
        with drawing(0.5 + 0.55 * len(scales)) as (figure, (axes,)):
            for trial in drawn:
                self._draw_line(axes, trial, scales)
            for position, scale in enumerate(scales):
                axes.axhline(position, color=MUTED, lw=0.8, zorder=1)
                for text, x, side in zip(scale.ends, (0.0, 1.0), ("left", "right"), strict=True):
                    axes.text(
                        x, position - 0.1, shown(text, 20), ha=side, va="bottom", color=MUTED, fontsize=FONT - 2, zorder=5
                    )  # fmt: skip
            labels = [
                f"{shown(scale.key, 22)}{' (log)' if scale.is_log else ''}" for scale in scales
            ]
            axes.set_yticks(range(len(scales)), labels)
            axes.tick_params(axis="y", length=0, labelcolor=INK)
            axes.set_ylim(len(scales) - 0.7, -0.5)
            axes.set_xlim(-0.03, 1.03)
            axes.set_xticks([])
            axes.grid(visible=False)
            for spine in axes.spines.values():
                spine.set_visible(False)
        keys = [Key("the best tenth", 1), Key("other complete trials", 0)]
        keys += [Key("ended early", -1)] if self._pruned else []
        return Chart("Parallel coordinates", figure, tuple(keys))

    def slices(self) -> list[Chart]:
        """Value over each option."""
        return [self._slice(scale) for scale in self._scales()]

    def importance(self) -> Chart | None:
        """Shares of options in what made the best trials good."""
        shares = sorted(self._record.importance.items(), key=lambda item: item[1])[-MOST_OPTIONS:]
        if not shares:
            return None
        with drawing(0.6 + 0.3 * len(shares)) as (figure, (axes,)):
            axes.barh(range(len(shares)), [share for _, share in shares], 0.6, color=PALETTE[0])
            axes.set_yticks(range(len(shares)), [shown(key, 24) for key, _ in shares])
            axes.tick_params(axis="y", length=0, labelcolor=INK, labelsize=FONT)
            axes.grid(visible=False, axis="y")
            axes.spines["left"].set_visible(False)
            axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g}\u00a0%")
        return Chart("Importance of options", figure)

    # -- parts -----------------------------------------------------------------------------------

    def _best_so_far(self) -> tuple[list[int], list[float]]:
        numbers: list[int] = []
        values: list[float] = []
        for trial in self._complete:
            assert trial.value is not None
            if not values or (trial.value > values[-1]) == (self._record.mode == "max"):
                numbers.append(trial.number)
                values.append(trial.value)
        if numbers:
            numbers.append(max(len(self._record.trials) - 1, numbers[-1]))
            values.append(values[-1])
        return numbers, values

    def _scales(self) -> list[Scale]:
        """Return the options that differ between trials."""
        axes = self._record.settings.get("axes")
        axes = axes if isinstance(axes, Mapping) else {}
        trials = [*self._complete, *self._pruned]
        keys = dict.fromkeys(key for trial in trials for key in trial.values)
        scales = [
            Scale.of(key, axes.get(key), [t.values[key] for t in trials if key in t.values])
            for key in list(keys)[:MOST_OPTIONS]
        ]
        return [
            scale
            for scale in scales
            if scale.categories == () or 1 < len(scale.categories) <= _MOST_CATEGORIES
        ]

    def _draw_line(self, axes: Any, trial: SearchTrial, scales: Sequence[Scale]) -> None:
        values = {**trial.values, self._record.metric: trial.value}
        places = [
            (scale.place(values[scale.key]), position)
            for position, scale in enumerate(scales)
            if scale.key in values  # others pass by options that only some trials have
        ]
        style: dict[str, Any] = {"color": PALETTE[0], "alpha": 0.35, "lw": 0.9}
        if trial.state == "pruned":
            style = {"color": MUTED, "alpha": 0.3, "lw": 0.7}
        elif trial.number in self._good:
            style = {"color": PALETTE[1], "alpha": 1.0, "lw": 1.8}
        axes.plot(*np.array(places).T, zorder=2 if trial.number not in self._good else 3, **style)

    def _slice(self, scale: Scale) -> Chart:
        with drawing(2.5) as (figure, (axes,)):
            for trials, colour, marker in (
                (self._pruned, MUTED, "v"),
                (self._complete, PALETTE[0], "o"),
                ([t for t in self._complete if t.number in self._good], PALETTE[1], "o"),
            ):
                having = [trial for trial in trials if scale.key in trial.values]
                x = [_position(scale, trial.values[scale.key]) for trial in having]
                axes.plot(x, _values(having), marker, ms=4, mew=0, color=colour, alpha=0.75)
            axes.set_xlabel(shown(scale.key))
            axes.set_ylabel(shown(self._metric, 34))
            if scale.categories:
                axes.set_xticks(
                    range(len(scale.categories)), [shown(c, 11) for c in scale.categories]
                )
                axes.set_xlim(-0.5, len(scale.categories) - 0.5)
            elif scale.is_log:
                axes.set_xscale("log")
                axes.xaxis.set_minor_formatter("")
                axes.xaxis.set_major_formatter(lambda value, _: f"{value:.3g}")
            _ticks(axes, values_on_x=not scale.categories and not scale.is_log)
        return Chart(f"{scale.key}", figure)


def _position(scale: Scale, value: Any) -> float:
    if scale.categories:
        return float(scale.categories.index(dump_yaml_value(value)))
    return float(value)


def _ticks(axes: Any, *, values_on_x: bool = True) -> None:
    from matplotlib.ticker import MaxNLocator

    if values_on_x:
        axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
        axes.xaxis.set_major_formatter(number_text)
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(number_text)


def _listed(axis: Any) -> list[Any]:
    """Return the listed values of an axis as the space has it; none if it is a range."""
    if isinstance(axis, Mapping):
        axis = axis.get("values", axis.get("choice"))
    return axis if isinstance(axis, list) else []


def _values(trials: Sequence[SearchTrial]) -> list[float]:
    return [math.nan if trial.value is None else trial.value for trial in trials]


def _is_drawable(trial: SearchTrial) -> bool:
    return trial.value is not None and abs(trial.value) < LARGEST


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < LARGEST
