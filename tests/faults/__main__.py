"""Command line of the suite."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

from tests.faults.support.running import KINDS, Plan, run_kind
from tests.faults.support.table import as_json, as_text, exit_code


def main(arguments: Sequence[str] | None = None) -> int:
    """Inject faults, print the table and return 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=main.__doc__)
    parser.add_argument("--quick", action="store_true", help="a small sample of every kind")
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS, metavar="KIND",
                        help=f"kinds of faults: {', '.join(KINDS)}")  # fmt: skip
    parser.add_argument("--case", help="a single case, by the name that a failure is listed with")
    parser.add_argument("--seed", type=int, default=0, help="of all random choices")
    parser.add_argument("--json", type=Path, help="also write the table and all failures there")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)),
                        help="cases at a time; the cores of this machine by default")  # fmt: skip
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    plan = Plan(options.seed, options.quick, options.case, max(1, options.jobs))
    cache = tempfile.mkdtemp(prefix="faults-cache-")
    os.environ["RL_TRAINING_CACHE"] = cache
    try:
        results = [run_kind(kind, plan, _progress) for kind in options.only]
    finally:
        shutil.rmtree(cache, ignore_errors=True)
    _progress("")
    sys.stdout.write(as_text(results) + "\n")
    if options.json is not None:
        options.json.write_text(json.dumps(as_json(results), indent=2) + "\n")
    return exit_code(results)


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()


if __name__ == "__main__":
    raise SystemExit(main())
