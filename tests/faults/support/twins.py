"""Small runs of every regime, the uninterrupted twin of each, and their comparison bit for bit."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from rl_training.runs.layout import step_directories
from rl_training.runtime import TrainConfig, resume, train
from tests.faults.support.processes import DONE, Ended, call

# network, batch and budgets so small that a run takes about a second
_SHARED: dict[str, Any] = {
    "total_timesteps": 400, "eval_episodes": 2, "checkpoint_interval": 40, "log_interval": 30,
    "env_kwargs": {"max_episode_steps": 20}, "seed": 3,
}  # fmt: skip
_NETWORKS: dict[str, Any] = {
    "hidden_sizes": [8, 8], "batch_size": 16, "eval_interval": 60, "tensorboard": False,
    "torch_threads": 1,
}  # fmt: skip
_LOGS = {"dataset_kind": "random", "dataset_size": 300}
_COLLECTS = {"learning_starts": 30, "train_frequency": 1, "gradient_updates_per_step": 1}
PROFILES: dict[str, dict[str, Any]] = {
    "td3_bc": {"algo": "td3_bc", "env_id": "Pendulum-v1", "algo_kwargs": {**_LOGS, "normalize_observations": True}},
    "iql": {"algo": "iql", "env_id": "Pendulum-v1", "algo_kwargs": _LOGS},
    "cql": {"algo": "cql", "env_id": "Pendulum-v1", "total_timesteps": 120, "algo_kwargs": _LOGS},
    "sac": {"algo": "sac", "env_id": "Pendulum-v1", "algo_kwargs": _COLLECTS},
    "dqn": {"algo": "dqn", "env_id": "CartPole-v1", "algo_kwargs": {**_COLLECTS, "prioritized": True, "n_step": 3}},
    "her": {"algo": "her", "env_id": "RL-PointGoal-v0", "algo_kwargs": _COLLECTS},
    "rlpd": {"algo": "rlpd", "env_id": "Pendulum-v1", "total_timesteps": 100, "checkpoint_interval": 20,
             "algo_kwargs": {**_LOGS, **_COLLECTS, "learning_starts": 10}},
    "sac sync": {"algo": "sac", "env_id": "Pendulum-v1", "num_envs": 2, "algo_kwargs": _COLLECTS},
    "sac async": {"algo": "sac", "env_id": "Pendulum-v1", "num_envs": 2,
                  "algo_kwargs": {**_COLLECTS, "vector_env": "async"}},
    "dqn async": {"algo": "dqn", "env_id": "CartPole-v1", "num_envs": 2,
                  "algo_kwargs": {**_COLLECTS, "prioritized": True, "vector_env": "async"}},
    # for attacks that repeat a run hundreds of times
    "tiny": {"algo": "sac", "env_id": "Pendulum-v1", "total_timesteps": 45, "checkpoint_interval": 20,
             "log_interval": 20, "eval_episodes": 1, "env_kwargs": {"max_episode_steps": 10},
             "algo_kwargs": {**_COLLECTS, "learning_starts": 10, "eval_interval": 30}},
}  # fmt: skip
LOCK_WAIT = 5.0  # seconds in which workers of a killed process end and let go of its lock


def profile_values(profile: str, output: Path, **changes: Any) -> dict[str, Any]:
    """Mapping of a small configuration."""
    values = {**_SHARED, **PROFILES.get(profile, {}), "output_dir": str(output), **changes}
    return {**values, "algo_kwargs": {**_NETWORKS, **values.get("algo_kwargs", {})}}


def run_of(output: Path) -> Path | None:
    """Newest run directory in `output`; one with checkpoints before one without."""
    runs = sorted(path for path in output.glob("*") if path.is_dir())
    with_checkpoints = [run for run in runs if step_directories(run / "checkpoints")]
    return (with_checkpoints or runs or [None])[-1]  # type: ignore[list-item]


class Twin:
    """An uninterrupted run, made once in `base` and shared by all processes."""

    def __init__(self, base: Path, name: str, values: dict[str, Any]) -> None:
        self.directory = base / "twins" / name.replace(" ", "_")
        self.values = values
        base.mkdir(parents=True, exist_ok=True)
        (base / "twins").mkdir(exist_ok=True)
        with FileLock(base / "twins" / f"{self.directory.name}.lock"):
            if not (self.directory / "seconds").exists():
                self._make()
        self.seconds = float((self.directory / "seconds").read_text())
        run = run_of(self.directory / "runs")
        assert run is not None
        self.run = run

    def _make(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir()
        began = time.monotonic()
        config = {**self.values, "output_dir": str(self.directory / "runs")}
        ended = call(lambda: train(TrainConfig(**config)), self.directory / "output")
        if ended.code != DONE:
            raise RuntimeError(f"the twin {self.directory.name} failed: {ended.output[-2000:]}")
        (self.directory / "seconds").write_text(str(time.monotonic() - began))


def go_on(values: dict[str, Any], **options: Any) -> None:
    """Resume the run in `output_dir`, or start again if it has no checkpoint yet.

    Workers of a killed process end a moment after it and hold its lock until then.
    """
    output = Path(values["output_dir"])
    run = run_of(output) if output.exists() else None
    if run is None or not step_directories(run / "checkpoints"):
        train(TrainConfig(**values))
        return
    until = time.monotonic() + LOCK_WAIT
    while True:
        try:
            resume(run, **options)
            return
        except OSError as error:
            if "is being trained" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.05)


def go_on_to_the_end(values: dict[str, Any], output: Path, *, timeout: float = 60.0) -> Ended:
    return call(lambda: go_on(values), output, timeout=timeout)


def differences(first: Path, second: Path) -> list[str]:
    """Name whatever of two finished runs is not the same, but for times."""
    return [
        name
        for name, compare in (
            ("checkpoint", _tensors),
            ("manifest", _manifest),
            ("metrics.jsonl", lambda run: repr(metrics_of(run))),  # nan is nan
            ("evaluations.npz", _evaluations),
            ("result.json", _result),
        )
        if _value_or_error(compare, first) != _value_or_error(compare, second)
    ]


def _value_or_error(compare: Any, run: Path) -> Any:
    try:
        return compare(run)
    except Exception as error:  # a damaged file differs from an intact one
        return f"{run}: {error}"


def _tensors(run: Path) -> dict[str, bytes]:
    newest = step_directories(run / "checkpoints")[-1]
    return {
        f"{newest.name}/{path.relative_to(newest)}": path.read_bytes()
        for path in sorted(newest.rglob("*.safetensors"))
    }


def _manifest(run: Path) -> dict[str, Any]:
    manifest = json.loads((run / "checkpoints" / "last" / "manifest.json").read_text())
    keys = ("progress", "callbacks", "algorithm", "spec", "reward_scale", "dataset", "experience")
    return {key: manifest.get(key) for key in keys}


def metrics_of(run: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [without_times(row) for row in rows]


def without_times(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if not key.startswith("time/")}


def _evaluations(run: Path) -> dict[str, tuple[Any, ...]]:
    with np.load(run / "evaluations.npz") as arrays:
        return {
            name: (str(arrays[name].dtype), arrays[name].shape, arrays[name].tobytes())
            for name in arrays.files
        }


def _result(run: Path) -> list[Any]:
    result = json.loads((run / "result.json").read_text())
    return [result["step"], result["stop_reason"], without_times(result["metrics"])]
