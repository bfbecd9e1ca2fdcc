"""Text that strangers wrote: configurations, overrides, JSON. Our own error, soon, in little memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rl_training.api import parse_observations
from rl_training.cli.main import main
from rl_training.config import CheckpointError, ConfigError, parse_yaml
from rl_training.experiment import load_config, read_run
from rl_training.runtime.config.files import parse_assignments


def doubled(line: str, first: str) -> str:
    """Lines of which each stands for nine of the one before."""
    letters = "abcdefghij"
    rest = [
        f"{new}: &{new} " + line.format(",".join([f"*{old}"] * 9)) for old, new in pairwise(letters)
    ]
    return "\n".join([f"a: &a {first}", *rest])


BOMBS = {
    "aliases": (doubled("[{}]", "[x, x, x]"), "line 5.*more than 20,000 values"),
    "merges": (doubled("{{<<: [{}]}}", "{x: 1, y: 2}"), "more than 20,000 values"),
    "self": ("&a [*a]", "inside of what it names"),
    "keys": ("".join(f"k{i}: {i}\n" for i in range(40_000)), "more than 20,000 values"),
    "flow": ("[" * 50_000, "nested more than 50 deep"),
    "blocks": ("- " * 50_000, "nested more than 50 deep"),
    "digits": ("a: " + "9" * 5_000, "line 1, column 4: a number of 5,000 characters"),
    "hexadecimal": ("a: 0x" + "f" * 50_000, "a number of"),
    "base 60": ("a: 1" + ":1" * 200_000, "a number of"),
    "text": ("a" * 2_000_000, "2,000,000 characters"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_small_text_cannot_cost_much_time_or_memory(name: str) -> None:
    text, expected = BOMBS[name]
    script = (
        "import resource, sys\n"
        "from rl_training.config import ConfigError, parse_yaml\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
        "try: parse_yaml(sys.stdin.read(), 'it')\n"
        "except ConfigError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", script], input=text, capture_output=True,
                          text=True, timeout=30)  # fmt: skip
    assert done.stderr == ""
    with pytest.raises(ConfigError, match=expected):
        raise ConfigError(done.stdout.strip())


@pytest.mark.parametrize(
    "text",
    ["[1]: 2", "? {a: 1}\n: 2", "a: !!timestamp 2024-01-01", "a: !!binary aGk=", "!!set {a}",
     "!!omap [a: 1]", "a: b\0c", "a: b\x01c", 'a: "\\0"', 'a: "\\ud800"', 'a: "\\UFFFFFFFF"',
     "!!int abc", "!!int ''", "!!bool x", "!!float x", "!!map [a]", "<<: 3", "a: =", "a: \ud800",
     "!!python/object/apply:os.system [ls]"],
)  # fmt: skip
def test_what_is_no_plain_value_is_a_config_error_that_names_the_source(text: str) -> None:
    with pytest.raises(ConfigError, match=r"odd\.yaml is not valid YAML") as caught:
        parse_yaml(text, "odd.yaml")
    assert "\n" not in str(caught.value)


def test_a_date_is_text_and_aliases_of_ordinary_size_are_fine() -> None:
    assert parse_yaml("a: 2024-13-45") == {"a": "2024-13-45"}
    assert parse_yaml("a: &a {x: 1}\nb: {<<: *a, y: 2}\nc: [*a, *a]") == {
        "a": {"x": 1}, "b": {"x": 1, "y": 2}, "c": [{"x": 1}, {"x": 1}],
    }  # fmt: skip


def test_a_key_given_twice_is_still_an_error_in_a_large_mapping() -> None:
    keys = "".join(f"k{i}: 1\n" for i in range(5_000))
    with pytest.raises(ConfigError, match="'k7' is given twice in the mapping at line 1"):
        parse_yaml(keys + "k7: 2\n")


def test_thousands_of_unknown_keys_are_one_short_message(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(f"algo: bc\n{'x' * 1_000}: 1\n" + "".join(f"k{i}: 1\n" for i in range(5_000)))
    with pytest.raises(ConfigError, match="and 4981 more problems") as caught:
        load_config(path)
    assert len(str(caught.value)) < 20_000


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (os.mkfifo, "not a regular file"),
        (lambda path: path.symlink_to("/dev/zero"), "not a regular file"),
        (lambda path: path.write_bytes(b"algo: \xff"), "is YAML text"),
        (lambda path: path.write_bytes(b"#" * (5 << 20)), "5242880 bytes"),
    ],
)
def test_a_configuration_is_a_regular_file_of_text(
    make: Any, expected: str, tmp_path: Path
) -> None:
    make(tmp_path / "a.yaml")
    with pytest.raises(ConfigError, match=rf"a\.yaml.*{expected}"):
        load_config(tmp_path / "a.yaml")


@pytest.mark.parametrize("value", ["[" * 9_000, "9" * 5_000, "\0", "&a [*a]", "!!binary aGk="])
def test_a_bad_override_names_its_key(value: str) -> None:
    with pytest.raises(ConfigError, match="the value of seed is not valid YAML"):
        parse_assignments([f"seed={value}"])


@pytest.mark.parametrize("text", ["[" * 100_000, "[" + "9" * 5_000 + "]", "[1e400, {}]", "\ud800"])
def test_observations_in_odd_json_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--obs .*write a list of numbers") as caught:
        parse_observations(text)
    assert len(str(caught.value)) < 200


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "config.yaml").write_text("algo: bc\nseed: 1\n")
    return tmp_path


@pytest.mark.parametrize(
    "content",
    ["[" * 100_000, "9" * 5_000, "[]", '{"step": "x"}', '{"seconds": {"a": "b"}}',
     '{"stop_reason": 3}', '{"seconds": {"a": 1' + "0" * 400 + "}}"],
)  # fmt: skip
def test_a_report_names_the_damaged_result(content: str, run: Path) -> None:
    (run / "result.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"result\.json is damaged"):
        read_run(run)


@pytest.mark.parametrize("name", ["config.yaml", "result.json", "metrics.jsonl"])
def test_a_report_follows_no_link_out_of_the_run(name: str, run: Path) -> None:
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to("/etc/passwd")
    with pytest.raises(CheckpointError, match=rf"{name} cannot be read: it is a link"):
        read_run(run)


def test_rows_of_metrics_that_are_none_are_left_out(run: Path) -> None:
    good = {"step": 5, "eval/return_mean": 1.0, "eval/return_std": 0.5}
    odd = ["[" * 100_000, '{"step": [1]}', '{"step": ' + "9" * 5_000 + "}", "x" * (3 << 20),
           '{"step": 9, "eval/return_mean": "high"}']  # fmt: skip
    lines = [*odd, json.dumps(good), '{"step": 6, "eval']
    (run / "metrics.jsonl").write_text("\n".join(lines))
    report = read_run(run)
    assert (report.evaluations, report.step) == (1, 9)


def test_scores_that_are_not_finite_are_reported_as_such(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = run / "other"
    other.mkdir()
    (other / "config.yaml").write_text("algo: bc\nseed: 2\n")
    row = '{"step": 5, "eval/return_mean": Infinity, "eval/return_std": NaN}'
    for directory in (run, other):
        (directory / "metrics.jsonl").write_text(row)
        (directory / "result.json").write_text('{"step": 5}')
    assert main(["report", str(run), str(other)]) == 0
    assert "inf ± nan" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["algo: [bc]", "algo: bc\nseed: x", "algo: bc\nseed: null", "- a"])
def test_a_report_of_an_odd_configuration_says_so(text: str, run: Path) -> None:
    (run / "config.yaml").write_text(text)
    with pytest.raises(CheckpointError, match=r"config\.yaml is not that of a run"):
        read_run(run)
