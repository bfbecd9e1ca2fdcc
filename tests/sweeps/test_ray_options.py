"""Options of a cluster that are wrong without one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rl_training.cli.main import main
from rl_training.config import ConfigError
from rl_training.sweeps.cluster.resources import (
    check_resources,
    describe_totals,
    fitting,
    parse_resources,
    task_options,
)


@pytest.fixture(autouse=True)
def _space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("space.yaml").write_text("base: bc/pendulum\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--address", "auto"], "--address is for a cluster: add --backend ray"),
        (["--storage", "shared"], "--storage is for a cluster: add --backend ray"),
        (["--resources", "cpus=1"], "--resources is for a cluster: add --backend ray"),
        (["--backend", "slurm"], "--backend 'slurm': write local or ray"),
        (["--backend", "ray", "--storage", "s3"], "--storage 's3': write shared or returned"),
        (["--backend", "ray", "--resources", "cpus"], "--resources 'cpus': write a number after ="),
        (["--backend", "ray", "--resources", "cpus=0"], "a trial must take something"),
        (
            ["--backend", "ray", "--address", "ray://head:10001"],
            "start the command on a machine of the cluster",
        ),
    ],
)
def test_a_wrong_option_is_one_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ray")
    assert main(["sweep", "space.yaml", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_without_ray_the_error_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main(["sweep", "space.yaml", "--backend", "ray"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "error: --backend ray needs Ray: pip install 'rl-training[ray]'"


@pytest.mark.parametrize(
    "text", ["cpus=-1", "cpus=nan", "cpus=many", "=1", "CPU=1", "memory=1", "gpus=1.5"]
)
def test_resources_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--resources"):
        parse_resources(text)


def test_resources_say_how_many_trials_a_node_holds() -> None:
    needs = parse_resources("cpus=0.1, gpus=0.5,simulator=1")
    check_resources(needs)
    assert task_options(needs) == {
        "num_cpus": 0.1,
        "num_gpus": 0.5,
        "resources": {"simulator": 1.0},
    }
    assert fitting(needs, {"CPU": 8, "GPU": 2, "simulator": 5}) == 4
    assert fitting(needs, {"CPU": 0.3, "GPU": 2, "simulator": 5}) == 3
    assert fitting(needs, {"CPU": 8, "GPU": 2}) == 0
    totals = {"CPU": 8.0, "node:10.0.0.1": 1.0, "memory": 1e9, "simulator": 2.0}
    assert describe_totals(totals) == "cpus=8,simulator=2"
