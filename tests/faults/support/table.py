"""The table of verdicts, as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tests.faults.support.running import KindResult
from tests.faults.support.verdicts import PROMISED, Tally, Verdict

COLUMNS = (
    "injected", "survived", "equal to the byte", "refused", "executed", "foreign exceptions", "hangs",
    "not equal", "other",
)  # fmt: skip


def counts_of(tally: Tally) -> dict[str, int]:
    """Numbers of one row, by column."""
    counts = tally.counts
    return {
        "injected": tally.injected,
        "survived": counts[Verdict.EQUAL] + counts[Verdict.SURVIVED],
        "equal to the byte": counts[Verdict.EQUAL],
        "refused": counts[Verdict.REFUSED],
        "executed": counts[Verdict.EXECUTED],
        "foreign exceptions": counts[Verdict.FOREIGN],
        "hangs": counts[Verdict.HANG],
        "not equal": counts[Verdict.NOT_EQUAL],
        "other": counts[Verdict.OTHER],
    }


def total_of(results: Sequence[KindResult]) -> Tally:
    total = Tally()
    for result in results:
        total.merge(result.tally)
    return total


def exit_code(results: Sequence[KindResult]) -> int:
    """1 if a promise was broken, or if a kind injected nothing and so shows nothing."""
    broken = any(
        count and verdict not in PROMISED
        for result in results
        for verdict, count in result.tally.counts.items()
    )
    return int(broken or not results or any(not result.tally.injected for result in results))


def as_text(results: Sequence[KindResult], longest: int = 60) -> str:
    """Table with a total, and the broken promises below it, each with how to repeat it."""
    rows = [(result.kind, counts_of(result.tally), f"{result.seconds:.0f}") for result in results]
    seconds = sum(result.seconds for result in results)
    rows.append(("total", counts_of(total_of(results)), f"{seconds:.0f}"))
    has_other = any(counts["other"] for _, counts, _ in rows)
    columns = [name for name in COLUMNS if name != "other" or has_other]
    cells = [["kind", *columns, "seconds"]]
    cells += [[kind, *(f"{counts[c]:,}" for c in columns), time] for kind, counts, time in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    ]
    rule = "-" * len(lines[0])
    text = [lines[0], rule, *lines[1:-1], rule, lines[-1]]
    failures = [failure for result in results for failure in result.failures]
    for failure in failures[:longest]:
        text += ["", f"{failure.kind}: {failure.verdict}: {failure.note}", f"  {failure.command}"]
    if len(failures) > longest:
        text += ["", f"and {len(failures) - longest} more; --json FILE has all"]
    return "\n".join(text)


def as_json(results: Sequence[KindResult]) -> dict[str, Any]:
    return {
        "kinds": {result.kind: counts_of(result.tally) for result in results},
        "seconds": {result.kind: result.seconds for result in results},
        "total": counts_of(total_of(results)),
        "failures": [asdict(failure) for result in results for failure in result.failures],
    }
