"""Speed beside other libraries: `make bench`, or `python -m benchmarks.speed` in the repository.

Every row is our time divided by a peer's for the same work, measured in turns in one process and one
thread. Exit status 0 unless something crashed: a busy machine is no failure.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from fnmatch import fnmatch
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.speed import flops, machine, report
from benchmarks.speed.gains import CONTESTS as GAIN_CONTESTS
from benchmarks.speed.gains import measure as gains_of
from benchmarks.speed.goals import GOALS
from benchmarks.speed.measure import measure, measure_parts, measure_scale
from benchmarks.speed.page import PAGE, page_text
from benchmarks.speed.parts import RUNS as PART_RUNS
from benchmarks.speed.problem import Problem, Settings

DIRECTORY = Path("runs/bench")
WHOLE, PART = DIRECTORY / "speed.json", DIRECTORY / "partial.json"


def main() -> int:
    arguments = parse_arguments()
    if arguments.page:
        return write_page(json.loads((arguments.json or WHOLE).read_text()))
    torch.set_num_threads(1)
    settings = Settings(
        rounds=arguments.rounds or (3 if arguments.quick else 5),
        seconds=0.2 if arguments.quick else 1.0,
        rows=100_000 if arguments.quick else 1_000_000,
        quick=arguments.quick,
        corl=arguments.corl,
        cleanrl=arguments.cleanrl,
    )
    if arguments.check:
        return check_twins(settings)
    result = run(settings, arguments.only)
    print(report.summary(result["rows"]))
    whole = arguments.only is None and not settings.quick
    if arguments.update:
        whole, result = True, updated(json.loads(WHOLE.read_text()), result)
    path = arguments.json or (WHOLE if whole else PART)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=2) + "\n")
    print(f"{path} written")
    if whole:
        write_page(result)
    crashed = [result["scale"], *result["rows"]]
    return 1 if any(found.get("crashed") for found in crashed) else 0


def run(settings: Settings, only: str | None) -> dict[str, Any]:
    """Everything that `only` names, as it goes into the JSON."""
    start = time.time()
    problem = Problem(settings)
    rows = []
    for row in measure(problem, [goal for goal in GOALS if matches(goal.id, only)]):
        rows.append(row)
        print(report.line(row), flush=True)
    parts = [
        found
        for name in PART_RUNS
        if matches(f"parts/{name}", only)
        if "shares" in (found := measure_parts(problem, name))
    ]
    print("\n".join(report.part_lines(parts)), flush=True)
    gains = [gains_of(problem, name) for name in GAIN_CONTESTS if matches(f"gains/{name}", only)]
    print("\n".join(report.gain_lines(gains)), flush=True)
    scale = {"not_measured": "left out by --only"}
    if matches("scale", only):
        scale = measure_scale(problem, DIRECTORY)
        print("\n".join(report.scale_lines(scale)), flush=True)
    rows.sort(key=lambda row: [goal.id for goal in GOALS].index(row["id"]))
    gemm = [row["theirs_us"] for row in rows if row["id"].endswith("/gemm") and "ratio" in row]
    return {
        "quick": settings.quick,
        "rounds": settings.rounds,
        "seconds": settings.seconds,
        "transitions": settings.rows,
        **machine.describe(settings),
        "mflop": {"td3": flops.td3_flops() / 1e6, "sac": flops.sac_flops() / 1e6},
        "gemm_gflop_per_second": flops.GEMM_FLOPS / median(gemm[0]) / 1e3 if gemm else None,
        "rows": rows,
        "parts": parts,
        "gains": gains,
        "scale": scale,
        "minutes": (time.time() - start) / 60,
    }


def updated(before: dict[str, Any], again: dict[str, Any]) -> dict[str, Any]:
    """Replace rows of a whole run by those that were measured again, and note which."""
    tables = {"rows": "id", "parts": "contest", "gains": "contest"}  # with the name of a row
    result, names = dict(before), set(before.get("again", {}).get("rows", []))
    for table, key in tables.items():
        measured = {row[key]: row for row in again[table]}
        result[table] = [measured.get(row[key], row) for row in before[table]]
        names |= {name if table == "rows" else f"{table}/{name}" for name in measured}
    return {**result, "again": {"rows": sorted(names), "load": again["load_average"]}}


def write_page(result: dict[str, Any]) -> int:
    PAGE.write_text(page_text(result))
    print(f"{PAGE} written")
    return 0


def check_twins(settings: Settings) -> int:
    from benchmarks.speed import jax_check

    differences = jax_check.check(Problem(dataclasses.replace(settings, rows=10_000)))
    for name, difference in differences.items():
        print(f"{name:<8} differs from ours by {difference:.1e} (tolerance {jax_check.TOLERANCE})")
    return 1 if max(differences.values()) > jax_check.TOLERANCE else 0


def matches(name: str, pattern: str | None) -> bool:
    """Whole or in part; `*` and the like as in a shell."""
    return pattern is None or pattern in name or fnmatch(name, pattern)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.speed", description=__doc__.splitlines()[0])
    parser.add_argument("--corl", type=Path, metavar="PATH", help="a checkout of CORL")
    parser.add_argument("--cleanrl", type=Path, metavar="PATH", help="a checkout of CleanRL")
    parser.add_argument("--only", metavar="PATTERN", help="such as sac, iql/jax, '*/sb3', scale")
    parser.add_argument(
        "--page",
        action="store_true",
        help="only write the page anew from the numbers of a whole run",
    )
    parser.add_argument(
        "--update",
        action="store_true",
        help="with --only: put these rows into the numbers and the page of the last whole run",
    )
    parser.add_argument("--check", action="store_true", help="only compare JAX's updates with ours")
    parser.add_argument("--rounds", type=int, help="default 5")
    parser.add_argument("--quick", action="store_true", help="less data, shorter turns, 3 rounds")
    parser.add_argument("--json", type=Path, metavar="PATH", help="where the numbers go")
    arguments = parser.parse_args()
    names = [
        *(goal.id for goal in GOALS),
        *(f"parts/{name}" for name in PART_RUNS),
        *(f"gains/{name}" for name in GAIN_CONTESTS),
        "scale",
    ]
    if not any(matches(name, arguments.only) for name in names):
        parser.error(f"--only {arguments.only}: there is no such row, only {', '.join(names)}")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
