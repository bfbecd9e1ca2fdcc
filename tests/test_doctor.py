"""`doctor` says which cores there are, what a run takes of them, and whether more would help."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import pytest
import torch

from rl_training.api import installation_problems
from rl_training.cli import threads
from rl_training.cli.main import main
from rl_training.config import packaged


@pytest.mark.parametrize(
    ("membership", "files", "limit"),
    [
        ("0::/\n", {"cpu.max": "max 100000"}, None),
        ("0::/\n", {"cpu.max": "150000 100000"}, 1.5),
        ("0::/a/b\n", {"a/cpu.max": "50000 100000", "a/b/cpu.max": "200000 100000"}, 0.5),
        ("0::/gone\n", {"cpu.max": "300000 100000"}, 3.0),  # seen from inside a container
        (
            "4:memory:/x\n1:cpu,cpuacct:/x\n",
            {
                "cpu,cpuacct/x/cpu.cfs_quota_us": "250000",
                "cpu,cpuacct/x/cpu.cfs_period_us": "100000",
                "cpu,cpuacct/cpu.cfs_quota_us": "-1",
                "cpu,cpuacct/cpu.cfs_period_us": "100000",
                "memory/x/cpu.max": "1 100000",  # of another tree
            },
            2.5,
        ),
        ("0::/\n", {}, None),
    ],
)
def test_limits_of_control_groups_are_found(
    membership: str, files: dict[str, str], limit: float | None, tmp_path: Path
) -> None:
    own, root = tmp_path / "membership", tmp_path / "cgroup"
    own.write_text(membership)
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content + "\n")
    assert threads.cgroup_limit(own, root) == limit


def test_a_system_without_control_groups_has_no_limit(tmp_path: Path) -> None:
    assert threads.cgroup_limit(tmp_path / "nothing", tmp_path) is None


def doctor(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    capsys.readouterr()
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    return {line[:11].strip(): line[12:] for line in lines}


def test_doctor_says_what_a_run_takes_and_why(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "usable_cores", lambda: 2)
    monkeypatch.setattr(threads, "cgroup_limit", lambda: None)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    before = torch.get_num_threads()
    found = doctor(capsys)
    assert torch.get_num_threads() == before
    assert found["cores"].startswith(f"2 of {os.cpu_count()} for this process")
    assert "a run takes 1 " in found["threads"]
    assert "OMP_NUM_THREADS=7" in found["threads"]
    assert re.search(r"\d+ GFLOP/s with 1 thread, \d+ with 2 \(", found["gemm"])
    assert not any("passive" in text for text in found.values())


def test_passive_waiting_is_pointed_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    assert "two threads slower than one" in doctor(capsys)[""]


def test_a_second_thread_is_not_tried_on_less_than_two_cores(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "usable_cores", lambda: 4)
    monkeypatch.setattr(threads, "cgroup_limit", lambda: 1.5)
    found = doctor(capsys)
    assert "of which the control group grants 1.5" in found["cores"]
    assert "no second core" in found["gemm"]


@pytest.mark.parametrize(("second", "verdict"), [(150.0, "may pay"), (100.0, "do not pay")])
def test_the_verdict_follows_the_measurement(
    second: float, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "usable_cores", lambda: 2)
    monkeypatch.setattr(threads, "cgroup_limit", lambda: None)
    monkeypatch.setattr(threads, "gemm_rate", lambda number: {1: 90.0, 2: second}[number])
    assert verdict in dict(threads.thread_lines())["gemm"]


def test_doctor_notices_that_there_are_no_packaged_configurations(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(packaged, "_root", lambda: tmp_path / "configs")
    assert main(["doctor"]) == 1
    text = capsys.readouterr().out
    assert "BROKEN      there are no packaged configurations: install rl-training again" in text
    assert "problems: installation" in text


def test_doctor_names_a_configuration_that_is_missing_or_damaged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shutil.copytree(packaged._root(), tmp_path / "configs")
    monkeypatch.setattr(packaged, "_root", lambda: tmp_path / "configs")
    assert installation_problems() == []
    shutil.rmtree(tmp_path / "configs" / "sac")
    (tmp_path / "configs" / "bc" / "pendulum.yaml").write_text("algo: bc\nsead: 1\n")
    missing, damaged = installation_problems()
    assert missing == "there is no packaged configuration of sac"
    assert damaged.startswith("bc/pendulum: sead: unknown key")


def test_doctor_compares_the_files_with_what_was_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "rl_training").mkdir()
    (tmp_path / "rl_training" / "whole.py").write_text("x = 1\n")
    (tmp_path / "rl_training" / "cut.py").write_text("")
    information = tmp_path / "rl_training-9.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: rl-training\nVersion: 9\n")
    (information / "RECORD").write_text(
        "rl_training/whole.py,,6\nrl_training/cut.py,,6\nrl_training/gone.py,,6\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (problem,) = installation_problems()
    assert problem == "rl_training/cut.py and 1 more: missing or not as installed"
