"""Rows as text."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from benchmarks.speed.goals import PEERS

Row = dict[str, Any]


def line(row: Row) -> str:
    """For the terminal."""
    name = f"{row['id']:<20}"
    if "not_measured" in row:
        return f"{name} not measured: {row['not_measured']}"
    low, high = row["quartiles"]
    judged = (
        f"keep {bound(row, 'keep')}  aim {bound(row, 'aim')}, {distance(row)}  {verdict(row):<6}"
        if has_goal(row)
        else "no goal"
    )
    return (
        f"{name} {row['ratio']:6.3f}  ({low:.3f} to {high:.3f})  {judged}  "
        f"{median(row['ours_us']):,.0f} us, {median(row['theirs_us']):,.0f} us"
    )


def has_goal(row: Row) -> bool:
    return row["keep"] is not None


def bound(row: Row, which: str) -> str:
    return f"{'at least' if row['at_least'] else 'at most'} {_digits(row[which])}"


def _digits(value: float) -> str:
    """Two decimals, or a third that is not 0."""
    return f"{value:.3f}".removesuffix("0")


def distance(row: Row) -> str:
    """How far it is from its aim."""
    return "reached" if row["within_aim"] else f"{abs(row['ratio'] - row['aim']):.3f} away"


def verdict(row: Row) -> str:
    if row["within_aim"]:
        return "aim"
    return "keep" if row["within_keep"] else "missed"


def summary(rows: Sequence[Row]) -> str:
    measured = [row for row in rows if "not_measured" not in row]
    judged = [row for row in measured if has_goal(row)]
    within = sum(row["within_keep"] for row in judged)
    aim = sum(row["within_aim"] for row in judged)
    text = f"{within} of {len(judged)} measured rows within keep, {aim} within aim"
    others = {
        "without a goal": len(measured) - len(judged),
        "not measured": len(rows) - len(measured),
    }
    return "; ".join([text, *(f"{count} {words}" for words, count in others.items() if count)])


def peer(row: Row) -> str:
    return PEERS[row["id"].partition("/")[2]]


def part_lines(parts: Sequence[dict[str, Any]]) -> list[str]:
    return [
        f"{each['contest']:<12} {each['us']:9,.0f} us: "
        + ", ".join(f"{kind} {share:.2f}" for kind, share in each["shares"].items())
        + f"; products at {each['gflop_per_second']:.0f} GFLOP/s"
        for each in parts
    ]


def gain_lines(gains: Sequence[dict[str, Any]]) -> list[str]:
    return [
        f"{row['contest']:<12} {row['us']:9,.0f} us; with / without "
        + ", ".join(f"{part} {gain:.3f}" for part, gain in row["gains"].items())
        for row in gains
    ]


def scale_lines(scale: dict[str, Any]) -> list[str]:
    if "not_measured" in scale:
        return [f"scale: not measured: {scale['not_measured']}"]
    lines = [
        f"{row['transitions']:>11,} transitions, {'mapped' if row['mapped'] else 'in memory':<9} "
        f"{row['us']:9,.0f} us, wall {median(row['wall_us']):9,.0f} us"
        for row in scale["data"]["sizes"]
    ]
    for kind in ("batch", "members", "width"):
        lines += [
            f"{kind:>8} {row['value']:>5,} {row['us']:9,.0f} us, {row['gflop_per_second']:3.0f} GFLOP/s"
            for row in scale[kind]
        ]
    return lines
