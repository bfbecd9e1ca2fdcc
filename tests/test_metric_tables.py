"""Tables of metrics: rows that are parsed together have the numbers that JSON reads one by one."""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import struct
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from rl_training.runs import numbers, tables
from rl_training.runs.numbers import parse_numbers
from rl_training.runs.rows import iterate_rows
from rl_training.runs.tables import read_tables
from tests.support.run_directories import make_run


def values_text(values: list[str], columns: int) -> bytes:
    rows = [values[start : start + columns] for start in range(0, len(values), columns)]
    return "".join("".join(f": {value}, " for value in row)[:-2] + "}\n" for row in rows).encode()


@pytest.mark.parametrize("long_doubles", [True, False])
def test_numbers_parsed_at_once_are_those_of_json(
    monkeypatch: pytest.MonkeyPatch, long_doubles: bool
) -> None:
    monkeypatch.setattr(numbers, "_HAS_64_BITS", numbers._HAS_64_BITS and long_doubles)
    draw = random.Random(0)
    values: list[float] = [draw.lognormvariate(0, 3) * draw.choice((1, -1)) for _ in range(20_000)]
    values += [round(draw.uniform(-1e4, 1e4), draw.randrange(9)) for _ in range(4_000)]
    values += [draw.randrange(-(10**9), 10**9) for _ in range(4_000)]
    values += [struct.unpack("d", draw.randbytes(8))[0] for _ in range(1_000)]
    values += [0.0, -0.0, 1e22, 5e-324, math.inf, -math.inf, 123456789.123, 0.0001234567890123456]
    parsed = parse_numbers(values_text([json.dumps(value) for value in values], 4), 4)
    assert parsed is not None
    np.testing.assert_array_equal(parsed[0].ravel(), np.array(values))
    assert parsed[1].ravel().tolist() == [type(value) is int for value in values]


def test_numbers_almost_halfway_between_two_floats_are_rounded_once() -> None:
    draw = random.Random(0)
    texts = [str(draw.random()) for _ in range(4_000)]
    for number in range(0, 4_000, 10):
        lower = draw.uniform(0.5, 1)
        middle = (Decimal(lower) + Decimal(math.nextafter(lower, 1))) / 2
        texts[number] = f"{middle:.19f}"
    parsed = parse_numbers(values_text(texts, 4), 4)
    assert parsed is not None
    assert parsed[0].ravel().tolist() == [float(text) for text in texts]


@pytest.mark.parametrize(
    "text",
    [
        *(
            "01",
            ".5",
            "5.",
            "+5",
            "-",
            "--5",
            "1-2",
            "-01",
            "-.5",
            "1e",
            "1..2",
            "1.2.3",
            "1" * 400,
        ),
        *("", "1 2", "1, 2", "1}\n: 2", "nan", "null", "true", "0x1", "1_0", "[1]", "[1, 2]", "{}"),
    ],
)
def test_what_json_does_not_take_for_a_number_is_not_parsed(text: str) -> None:
    for position in range(4):
        values = ["1", "2.5", "-3", "4"] * 5
        values[8 + position] = text
        assert parse_numbers(values_text(values, 4), 4) is None


LINES = (
    '{"step": 1, "a/x": 1.5}',
    '{"step": 2, "a/x": NaN}',
    '{"step": 3.0, "a/x": 1}',
    '{"step": 4, "a/x": "text"}',
    '{"step": 5, "a/x": [1, 2]}',
    '{"step": 6, "a/x": 01}',
    '{"step": 7,"a/x":2}',
    '{"step": 8, "a/x": 1, "a/x": 2}',
    '{"step": 9, "a\\u002fx": 2.25}',
    '{"step": 10, "a\\u0007x": 2, "b/y": 1e400}',
    '{"a/x": 3}',
    '[{"step": 11, "a/x": 3}]',
    '{"step": 12, "a/x": 3} {"step": 13, "a/x": 3}',
    '{"step": 14, "a/x": 3}\r',
    '{"step": 9007199254740993, "a/x": 3}',
    '{"step": 15, "a/x": true}',
    '{"step": 16, "é/x": 1e-07}',
    "",
)


@pytest.mark.parametrize("odd", LINES)
def test_tables_have_the_rows_that_are_decoded_one_by_one(tmp_path: Path, odd: str) -> None:
    regular = [json.dumps({"step": 100 + row, "a/x": row / 7}) for row in range(40)]
    path = tmp_path / "metrics.jsonl"
    path.write_text("\n".join([*regular[:20], odd, *regular[20:], '{"step": 7, "a/x": 1']))
    rows: dict[int, dict[str, float]] = {}
    for table in read_tables(path):
        for line, values in zip(table.lines.tolist(), table.values, strict=True):
            rows[line] = dict(zip(table.names, values.tolist(), strict=True))
    expected = [{k: float(v) for k, v in row.items()} for row in iterate_rows(path)]
    assert repr([rows[line] for line in sorted(rows)]) == repr(expected)


def test_rows_as_training_writes_them_need_no_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "decode_row", lambda line: pytest.fail(f"decoded {line[:80]!r}"))
    run = make_run(tmp_path, "sac", 0, rows=3_000)
    path = run / "metrics.jsonl"
    with path.open("a") as file:  # evaluations and losses in rows of their own
        for step in range(500_000, 500_050):
            file.write(json.dumps({"step": step, "train/loss": 1e-7 * step}) + "\n")
            scores = {"step": step, **dict.fromkeys(("eval/a", "eval/b", "eval/c", "eval/d"), 1)}
            file.write(json.dumps({**scores, "eval/e": math.nan}) + "\n")
    lines = np.concatenate([table.lines for table in read_tables(path)])
    assert sorted(lines.tolist()) == list(range(3_100))


@pytest.mark.slow
def test_two_hundred_runs_are_read_once_and_reported_in_little_memory(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra report")
    pytest.importorskip("jinja2", reason="needs the extra report")
    first = make_run(tmp_path, "sac", 0, rows=2_000, metrics=25)
    for seed in range(1, 200):
        run = shutil.copytree(first, tmp_path / f"run{seed}", copy_function=os.link)
        config = (run / "config.yaml").read_text().replace("seed: 0", f"seed: {seed % 50}")
        (run / "config.yaml").unlink()
        (run / "config.yaml").write_text(config.replace("sac", f"sac{seed // 50}"))
    code = """
import resource, sys
from rl_training.cli.main import main
from rl_training.runs import rows, tables
lines, decoded = [], []
read_lines, decode_row = tables.read_lines, tables.decode_row
tables.read_lines = lambda path: (lines.append(1) or line for line in read_lines(path))
tables.decode_row = lambda line: decoded.append(1) or decode_row(line)
assert main(["report", sys.argv[1], "-o", sys.argv[2]]) == 0
print("counts", len(lines), len(decoded), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
    command = [sys.executable, "-c", code, str(tmp_path), str(tmp_path / "report.html")]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    read, decoded, kilobytes = map(int, output.splitlines()[-1].split()[1:])
    assert (read, decoded) == (200 * 2_000, 0)
    assert kilobytes < 500_000
