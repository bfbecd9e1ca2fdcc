"""Time of a run by activity: a stopwatch that books every second on one named span."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter

SPANS = ("collect", "sample", "update", "evaluate", "log", "checkpoint", "other")


class Spans:
    """Seconds by span over the whole run; their sum is the time that training took.

    The training loop books with `lap`, one clock reading each. Rarer activities, which may be nested,
    use a `with` block; the enclosing span gets only the rest of the time.
    """

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(SPANS, 0.0)
        self._at_row = dict(self.seconds)
        self._open = "other"
        self._since = perf_counter()

    def start(self) -> None:
        """Start counting now."""
        self._since = perf_counter()

    def lap(self, span: str) -> None:
        """Book the time since the last booking."""
        now = perf_counter()
        self.seconds[span] += now - self._since
        self._since = now

    @contextmanager
    def __call__(self, span: str) -> Iterator[None]:
        outer = self._open
        self.lap(outer)
        self._open = span
        try:
            yield
        finally:
            self.lap(span)
            self._open = outer

    def totals(self) -> dict[str, float]:
        """Return the seconds of the whole run until now."""
        self.lap(self._open)
        return dict(self.seconds)

    def load(self, totals: Mapping[str, float]) -> None:
        """Go on from the totals of an earlier process; a checkpoint may be older than they are."""
        self.seconds |= {span: float(totals[span]) for span in SPANS if span in totals}
        self._at_row = dict(self.seconds)

    def row(self) -> dict[str, float]:
        """Return metrics: seconds since the last row."""
        totals = self.totals()
        passed = {f"time/{span}_seconds": totals[span] - self._at_row[span] for span in totals}
        self._at_row = totals
        return passed
