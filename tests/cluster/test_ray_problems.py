"""Everything that a cluster lacks is said before anything starts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.conftest import ThreeNodes, small_trials
from tests.cluster.test_ray_sweeps import states, sweep_on

from rl_training.cli.main import main
from rl_training.config import OutputError
from rl_training.sweeps.directory import SweepDirectory

pytestmark = pytest.mark.cluster
PLAIN = """\
base: bc/pendulum
overrides: {total_timesteps: 200, eval_episodes: 1, hidden_sizes: [8, 8], batch_size: 16}
seeds: [1, 2]
"""


@pytest.fixture
def odd_node(nodes: ThreeNodes) -> Iterator[Any]:
    """Function that adds a fourth node, which goes at the end of the test."""
    added: list[Any] = []

    def add(**options: Any) -> Any:
        added.append(nodes.add(**options))
        return added[-1]

    yield add
    for node in added:
        nodes.remove(node, orderly=True)
    nodes.settle()


@pytest.fixture
def space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("space.yaml").write_text(PLAIN)
    return "space.yaml"


def test_a_node_that_does_not_see_the_directory_is_named(
    nodes: ThreeNodes, odd_node: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`/proc/self/cwd` is another directory on a node that was started in another one."""
    here = Path.cwd()  # of the other nodes
    (tmp_path / "other").mkdir()
    directory = Path("/proc/self/cwd") / os.path.relpath(tmp_path / "sweep", here)
    monkeypatch.chdir(tmp_path / "other")
    odd_node()
    monkeypatch.chdir(here)
    with pytest.raises(OutputError) as caught:
        sweep_on(nodes.address, small_trials(directory), directory)
    (line,) = str(caught.value).splitlines()
    assert line.count("(") == 1, "one node of four"
    assert "does not see" in line
    assert "--storage returned" in line
    assert not any(tmp_path.glob("sweep/*__*"))
    trials = small_trials(directory, steps=60)[:2]
    assert states(sweep_on(nodes.address, trials, directory, storage="returned")) == {"ended"}


def test_a_node_with_another_torch_is_named(
    nodes: ThreeNodes, odd_node: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = tmp_path / "packages/torch-9.9.dist-info/METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text("Metadata-Version: 2.1\nName: torch\nVersion: 9.9\n")
    path = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", f"{metadata.parents[1]}{os.pathsep}{path}")
    odd_node()
    with pytest.raises(OutputError, match=r"node .* has torch 9\.9, and the driver has"):
        sweep_on(nodes.address, small_trials(tmp_path / "sweep"), tmp_path / "sweep")


@pytest.mark.parametrize("storage", ["shared", "returned"])
def test_a_log_that_a_node_does_not_have_is_named(
    storage: str, nodes: ThreeNodes, odd_node: Any, tmp_path: Path, log_file: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir("/")
    odd_node()
    monkeypatch.chdir(log_file.parent)
    seen = Path("/proc/self/cwd") / log_file.name
    trial = small_trials(tmp_path / "sweep")[1]
    kwargs = {**trial.config.algo_kwargs, "dataset_kind": "npz", "dataset_path": str(seen)}
    del kwargs["dataset_size"]
    config = trial.config.replace(env_id=None, env_kwargs={}, algo_kwargs=kwargs)
    changed = type(trial)(trial.name, config)
    with pytest.raises(OutputError, match=r"node .* does not have /proc/self/cwd/.*log\.npz"):
        sweep_on(nodes.address, [changed], tmp_path / "sweep", storage=storage)


def test_resources_that_no_node_has_are_refused_at_once(
    nodes: ThreeNodes, space: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["sweep", space, "--backend", "ray", "--address", nodes.address]
    assert main([*words, "--resources", "cpus=1,simulator=2"]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first == ("error: --resources cpus=1,simulator=2: no node of the cluster has as much")
    assert second.startswith("there are ")
    assert second.count("cpus=1") == 3
    assert not Path("runs").exists()


def test_runs_go_where_their_resources_are(
    nodes: ThreeNodes, odd_node: Any, space: str, capsys: pytest.CaptureFixture[str]
) -> None:
    odd_node(resources={"simulator": 1})
    words = ["sweep", space, "--backend", "ray", "--address", nodes.address]
    assert main([*words, "--output-dir", "out", "--resources", "cpus=0.5,simulator=1"]) == 0
    err = capsys.readouterr().err
    assert "Ray has 4 nodes, with room for 1 run at a time" in err
    files = SweepDirectory(Path("out"))
    assert {files.status(record.name).state for record in files.records()} == {"ended"}


def test_an_address_where_no_ray_answers_is_an_error(
    space: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", space, "--backend", "ray", "--address", "127.0.0.1:1"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) <= 2
    assert lines[0].startswith("error: no Ray answers at 127.0.0.1:1")
