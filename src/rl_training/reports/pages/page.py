"""Pages: one HTML file each, without a request to anywhere and without a script.

Whatever comes from runs, logs or file names is text: jinja2 escapes every value, control characters are shown as escapes,
and the content security policy of the page allows inline styles and nothing else.
"""

from __future__ import annotations

import math
from functools import cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_training.config import MissingExtraError, visible
from rl_training.files import written_aside
from rl_training.reports.pages.drawing import DARK, GRID, INK, MUTED, PALETTE, Chart

if TYPE_CHECKING:
    from jinja2 import Environment


def write_page(path: str | Path, template: str, **values: Any) -> Path:
    """Render a template to a file; values are those that the template names."""
    check_page_packages()
    text = (
        _environment()
        .get_template(template)
        .render(
            **values,
            chart=_Gallery(),
            palette=list(zip(PALETTE, DARK, strict=True)),
            ink=INK,
            muted=MUTED,
            grid=GRID,
        )
    )
    target = Path(path)
    with written_aside(target) as aside:
        # a name of a file may hold bytes that are no text
        aside.write_bytes(text.encode("utf-8", "replace"))
    return target


def check_page_packages() -> None:
    """Refuse to begin without the packages that draw charts and fill templates."""
    for package, name in (("matplotlib", "matplotlib"), ("jinja2", "Jinja2")):
        try:
            __import__(package)
        except ImportError:
            raise MissingExtraError("an HTML page", name, "report") from None


def number(value: Any, digits: int = 4) -> str:
    """Write a number for readers: `−1,234.5`, or a dash where there is none."""
    if value is None or isinstance(value, bool):
        return "–" if value is None else str(value).lower()
    if isinstance(value, int):
        return f"{value:,}".replace("-", "−")
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else "∞" if value > 0 else "−∞"
    size = abs(value)
    if size and not 1e-4 <= size < 1e9:
        return f"{value:.{digits - 1}e}".replace("-", "−")
    decimals = digits - 1 - math.floor(math.log10(size)) if size else 0
    return f"{value:,.{min(max(decimals, 0), 8)}f}".replace("-", "−")


def fact(value: Any) -> str:
    """Write a single value, a number without needless zeros."""
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:,.5g}".replace("-", "−")
    return number(value) if value is None or isinstance(value, int | float) else str(value)


def percent(value: float | None) -> str:
    """Write a share as a percentage, or a dash."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{100 * value:.3g}\u00a0%"


def interval(low: float | None, high: float | None) -> str:
    """Write the ends of an interval, or a dash."""
    return "–" if low is None or high is None else f"[{number(low)}, {number(high)}]"


class _Gallery:
    """Draws charts for one page and gives each a name of its own."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def __call__(self, chart: Chart) -> Any:
        from markupsafe import Markup

        return Markup(chart.inline(f"chart{next(self._numbers)}"))


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("rl_training.reports.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": number,
        "fact": fact,
        "percent": percent,
        "interval": interval,
    }
    return environment


def _shown(value: Any) -> Any:
    from markupsafe import Markup

    if isinstance(value, str) and not isinstance(value, Markup):
        return visible(value)
    return value
