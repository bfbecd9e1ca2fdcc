"""Three nodes of a Ray cluster on this machine, small trials, and what the local executor makes of them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rl_training.runtime import TrainConfig
from rl_training.sweeps.description import Trial, make_trial
from rl_training.sweeps.running import RunOptions, run_sweep

NODE = {"num_cpus": 1, "object_store_memory": 100 * 2**20, "include_dashboard": False}
STEPS = 1500


@dataclass
class ThreeNodes:
    """Cluster whose nodes can be lost and replaced."""

    cluster: Any
    added: int = 0
    nodes: list[Any] = field(default_factory=list)

    @property
    def address(self) -> str:
        return str(self.cluster.address)

    def add(self, **options: Any) -> Any:
        self.added += 1
        node = self.cluster.add_node(**{**NODE, **options})
        self.nodes.append(node)
        return node

    def restore(self) -> None:
        """Have three nodes again, all of them plain."""
        while len(self.nodes) < 3:
            self.add()
        self.settle()

    def settle(self) -> None:
        """Wait until the cluster knows which nodes it has."""
        self.cluster.wait_for_nodes(timeout=90)

    def remove(self, node: Any, *, orderly: bool = False) -> None:
        """Take a node out of the cluster; what runs on it notices by itself."""
        self.nodes.remove(node)
        self.cluster.remove_node(node, allow_graceful=orderly)

    def cut_power(self, node: Any) -> None:
        """Lose a node with all its processes at once."""
        doomed = processes_of(node)
        for process in doomed:
            kill(process, signal.SIGSTOP)
        self.remove(node)
        for process in doomed:
            kill(process, signal.SIGKILL)

    def node_of(self, process: int) -> Any:
        """Return the node, other than the driver's, that a trial's process runs on."""
        for node in self.nodes[1:]:
            if process in processes_of(node):
                return node
        return None


def processes_of(node: Any) -> list[int]:
    (raylet,) = node.all_processes["raylet"]
    return descendants(raylet.process.pid)


def descendants(process: int) -> list[int]:
    """List a process and all below it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = int(entry.read_text().rsplit(")", 1)[1].split()[1])
            children.setdefault(parent, []).append(int(entry.parent.name))
    found = [process]
    for parent in found:  # grows while it is walked
        found += children.get(parent, [])
    return found


def kill(process: int, number: signal.Signals = signal.SIGKILL) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, number)


@pytest.fixture(scope="session")
def _cluster(_shared_cache: None) -> Iterator[ThreeNodes]:
    pytest.importorskip("ray")
    from rl_training.envs.ray_cluster import import_ray

    import_ray()  # sets what Ray reads from the environment
    from ray.cluster_utils import Cluster

    nodes = ThreeNodes(Cluster())
    nodes.restore()
    yield nodes
    nodes.cluster.shutdown()


@pytest.fixture
def nodes(_cluster: ThreeNodes) -> ThreeNodes:
    _cluster.restore()
    return _cluster


def small_trials(output_dir: Path, steps: int = STEPS) -> list[Trial]:
    """Make runs of a few seconds: one learns online with a replay, the others from a log."""
    shared = {"batch_size": 16, "hidden_sizes": [8, 8], "eval_interval": steps // 3}
    values: dict[str, Any] = {
        "env_id": "Pendulum-v1",
        "env_kwargs": {"max_episode_steps": 30},
        "eval_episodes": 2,
        "log_interval": 50,
        "checkpoint_interval": steps // 10,
        "total_timesteps": steps,
    }
    online = {**values, "algo": "sac", "algo_kwargs": {**shared, "learning_starts": 20}}
    offline = {
        **values,
        "algo": "td3_bc",
        "total_timesteps": 4 * steps,
        "checkpoint_interval": steps // 3,
        "algo_kwargs": {**shared, "dataset_kind": "random", "dataset_size": 300},
    }
    configs = [(online, 1), (offline, 1), (online, 2), (offline, 2)]
    return [
        make_trial(TrainConfig(**{**config, "seed": seed}), output_dir, {"algo": config["algo"]})
        for config, seed in configs
    ]


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory, _shared_cache: None) -> Path:
    """Directory of the same trials as the local executor makes them."""
    directory = tmp_path_factory.mktemp("reference") / "sweep"
    result = run_sweep(small_trials(directory), directory, options=RunOptions(jobs=2))
    assert not result.failed
    return directory


def wait_until(
    condition: Callable[[], Any], seconds: float = 90.0, what: str = "it to happen"
) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        answer = condition()
        if answer:
            return answer
        time.sleep(0.1)
    raise AssertionError(f"waited {seconds:g} s for {what}")


def names_of(trials: Sequence[Trial]) -> list[str]:
    return [trial.name for trial in trials]
