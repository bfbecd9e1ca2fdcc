"""A worker's scores are those of this process, come at fixed steps, and survive any kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from rl_training.algorithms import registry
from rl_training.api import TD3BC
from rl_training.config import ConfigError, EnvError, RunError
from rl_training.runtime import Callback, TrainConfig, TrainerState, execution, resume, train
from rl_training.runtime.evaluation import Evaluation
from rl_training.runtime.evaluation_worker import EvaluationWorker, _plain, _prepare
from rl_training.runtime.snapshots import Snapshot
from rl_training.runtime.trainer import INTERRUPTED
from tests.scripted_env import ScriptedEnv
from tests.test_online_runs import KillAtTick
from tests.test_resume import Killed, assert_same_run, killed_run, metrics_of, tensors_of

ONE = {"eval_workers": 1}


class WorkerHere(EvaluationWorker):
    """All but the process: networks go through bytes, and are evaluated when the answer is wanted."""

    def __init__(self, config: Any, spec: Any, normalizer: Any, seeds: Any) -> None:
        about = {"config": config.as_dict(), "spec": spec.as_dict(), "plugin": None, "seeds": seeds}
        statistics = {} if normalizer is None else normalizer.state_dict()
        self._evaluate = _prepare(about, statistics)
        self._asked: bytes | None = None

    def ask(self, networks: Any) -> None:
        assert self._asked is None
        self._asked = save_tensors(_plain(networks))

    def answer(self) -> Evaluation:
        assert self._asked is not None
        found, self._asked = self._evaluate(load_tensors(self._asked)), None
        return Evaluation(
            **{name: None if value is None else np.array(value) for name, value in found.items()}
        )

    def close(self) -> None:
        """There is no process."""


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "EvaluationWorker", WorkerHere)


def evaluations_of(run_dir: Path) -> dict[str, Any]:
    with np.load(run_dir / "evaluations.npz") as saved:
        return {key: saved[key].tolist() for key in saved.files}


def best_of(run_dir: Path) -> Path:
    return (run_dir / "checkpoints" / "best").resolve()


@pytest.mark.parametrize("algo", ["td3_bc", "sac", "dqn"])
def test_a_worker_gives_the_scores_weights_and_best_of_this_process(
    algo: str, pendulum_config: Any
) -> None:
    options: dict[str, Any] = {"hidden_sizes": [64, 64], "learning_rate": 0.01}
    if algo == "td3_bc":
        options |= {"normalize_observations": True}
    changes = {"total_timesteps": 50, "checkpoint_interval": 1_000}
    without = train(pendulum_config(algo, algo_kwargs=options, **changes)).run_dir
    beside = train(pendulum_config(algo, algo_kwargs={**options, **ONE}, **changes)).run_dir
    assert evaluations_of(beside)["steps"] == [15, 30, 45, 50]
    assert evaluations_of(beside) == evaluations_of(without)
    for name in ("last", "best"):
        expected, found = (tensors_of(run / "checkpoints" / name) for run in (without, beside))
        networks = [key for key in expected if key.startswith(("networks.", "optimizers."))]
        assert networks
        assert all(torch.equal(found[key], expected[key]) for key in networks)
    assert best_of(beside).name == best_of(without).name
    rows = [row for row in metrics_of(beside) if "eval/return_mean" in row]
    assert rows == [row for row in metrics_of(without) if "eval/return_mean" in row]


def test_scores_are_applied_at_the_next_point_whatever_the_time(
    pendulum_config: Any, here: None
) -> None:
    class Scores(Callback):
        def __init__(self) -> None:
            self.seen: list[tuple[int, int]] = []

        def on_eval_end(self, state: TrainerState, metrics: Any) -> None:
            self.seen.append((state.scored.global_step, state.global_step))

    scores = Scores()
    train(pendulum_config(total_timesteps=50, algo_kwargs=ONE), callbacks=[scores])
    assert scores.seen == [(15, 30), (30, 45), (45, 50), (50, 50)]
    scores = Scores()
    train(pendulum_config(total_timesteps=45), callbacks=[scores])
    assert scores.seen == [(15, 15), (30, 30), (45, 45)]


def test_early_stopping_stops_one_evaluation_later(pendulum_config: Any, here: None) -> None:
    options = {"eval_interval": 5, "early_stopping": {"patience": 2, "min_delta": 1e9}}
    expected = train(pendulum_config(algo_kwargs=options))
    assert expected.checkpoint_path.name == "step_15"
    found = train(pendulum_config(algo_kwargs={**options, **ONE}))
    assert found.stop_reason == expected.stop_reason
    assert found.checkpoint_path.name == "step_20"
    assert evaluations_of(found.run_dir)["steps"] == [
        5,
        10,
        15,
        20,
    ]  # the final policy's is the last


def test_early_stopping_on_a_loss_sees_the_loss_of_that_step(
    pendulum_config: Any, here: None
) -> None:
    class Losses(Callback):
        def __init__(self) -> None:
            self.seen: dict[int, float | None] = {}

        def on_eval_end(self, state: TrainerState, metrics: Any) -> None:
            self.seen[state.scored.global_step] = metrics.get("train/actor_loss")

    expected, found = Losses(), Losses()
    train(pendulum_config(log_interval=20), callbacks=[expected])
    train(pendulum_config(log_interval=20, algo_kwargs=ONE), callbacks=[found])
    assert expected.seen[15] is None
    assert found.seen == expected.seen


@pytest.mark.parametrize("update", [14, 16, 21, 29, 30, 31, 39, 44, 45, 46])
def test_killed_while_an_evaluation_is_under_way_is_still_the_same_run(
    update: int, pendulum_config: Any, here: None
) -> None:
    """Before it is asked for, with and without a checkpoint since, when it is applied, after that."""
    options = {**ONE, "early_stopping": {"patience": 50}, "normalize_observations": True}
    config = pendulum_config(total_timesteps=50, algo_kwargs={**options, "learning_rate": 0.01})
    whole = train(config)
    run_dir = killed_run(config, update)
    resume(run_dir)
    assert_same_run(whole.run_dir, run_dir)
    assert_same_best(whole.run_dir, run_dir)


@pytest.mark.parametrize("tick", [31, 47, 66, 88, 90])
def test_online_runs_killed_at_any_tick_are_the_same(
    tick: int, pendulum_config: Any, here: None
) -> None:
    config = pendulum_config("sac", total_timesteps=60, checkpoint_interval=7, algo_kwargs=ONE)
    whole = train(config)
    existing = set(Path(config.output_dir).glob("*"))
    with pytest.raises(Killed):
        train(config, callbacks=[KillAtTick(tick)])
    (run_dir,) = set(Path(config.output_dir).glob("*")) - existing
    resume(run_dir)
    assert_same_run(whole.run_dir, run_dir)
    assert_same_best(whole.run_dir, run_dir)


def assert_same_best(first: Path, second: Path) -> None:
    expected, found = tensors_of(best_of(first)), tensors_of(best_of(second))
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)


class Scripted(WorkerHere):
    """Scores by the number of the question."""

    scores: Iterator[float]

    def answer(self) -> Evaluation:
        super().answer()
        return Evaluation(np.array([next(self.scores)]), np.array([1]))


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Any:
    def use(*scores: float) -> None:
        monkeypatch.setattr(Scripted, "scores", iter(scores), raising=False)
        monkeypatch.setattr(execution, "EvaluationWorker", Scripted)

    return use


def test_best_is_the_state_of_the_step_that_was_scored(pendulum_config: Any, scripted: Any) -> None:
    """Step 45 is the best, which is known at 60; without it nothing would have been saved there."""
    options = {**ONE, "keep_checkpoints": 2}
    config = pendulum_config("sac", total_timesteps=90, checkpoint_interval=40, algo_kwargs=options)
    scripted(2, 1, 3, 2, 2, 2)
    result = train(config)
    assert best_of(result.run_dir).name == "step_45"
    scripted(2, 1, 3)
    at_45 = train(config.replace(total_timesteps=45))
    expected, found = tensors_of(at_45.checkpoint_path), tensors_of(best_of(result.run_dir))
    shared = [name for name in expected if not name.startswith("replay.")]
    assert set(found) == set(shared)
    assert all(torch.equal(expected[name], found[name]) for name in shared)
    kept = {path.name for path in (result.run_dir / "checkpoints").glob("step_*")}
    assert kept == {"step_45", "step_80", "step_90"}


def test_killed_before_a_late_best_is_written_writes_it_after_all(
    pendulum_config: Any, scripted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = pendulum_config(total_timesteps=90, checkpoint_interval=40, algo_kwargs=ONE)
    scripted(2, 1, 3, 2, 2, 2)
    whole = train(config)
    write = Snapshot.write

    def die(self: Snapshot, directory: Path) -> None:
        if self.step == 45:
            raise Killed
        write(self, directory)

    monkeypatch.setattr(Snapshot, "write", die)
    scripted(2, 1, 3, 2, 2, 2)
    with pytest.raises(Killed):
        train(config)
    monkeypatch.setattr(Snapshot, "write", write)
    (run_dir,) = set(Path(config.output_dir).glob("*")) - {whole.run_dir}
    assert not (run_dir / "checkpoints" / "step_45").exists()
    scripted(2, 2, 2)
    resume(run_dir)
    assert best_of(run_dir).name == "step_45"
    assert_same_run(whole.run_dir, run_dir)
    assert_same_best(whole.run_dir, run_dir)


def test_a_run_that_was_interrupted_goes_on_with_its_evaluation(
    pendulum_config: Any, here: None
) -> None:
    class Interrupt(Callback):
        def on_update_end(self, state: TrainerState, terms: Any) -> None:
            if state.update_count == 23:
                state.request_stop(INTERRUPTED)

    config = pendulum_config(algo_kwargs=ONE)
    whole = train(config)
    stopped = train(config, callbacks=[Interrupt()])
    assert not (stopped.run_dir / "evaluations.npz").exists()  # that of step 15 is applied at 30
    resume(stopped.run_dir)
    assert_same_run(whole.run_dir, stopped.run_dir)


def test_a_longer_budget_and_a_saved_copy_go_on_exactly(
    pendulum_config: Any, here: None, tmp_path: Path
) -> None:
    whole = train(pendulum_config(total_timesteps=60, algo_kwargs=ONE))
    half = TD3BC(pendulum_config(total_timesteps=33, algo_kwargs=ONE))
    result = half.learn()
    assert evaluations_of(result.run_dir)["steps"] == [15, 30, 33]
    copy = TD3BC.load(half.save(tmp_path / "copy")).learn(total_timesteps=60)
    resume(result.run_dir, total_timesteps=60)
    for found in (result.run_dir, copy.run_dir):
        expected = tensors_of(whole.checkpoint_path)
        last = tensors_of(found / "checkpoints" / "last")
        assert all(torch.equal(expected[name], last[name]) for name in expected)
    assert metrics_of(result.run_dir) == metrics_of(whole.run_dir)


def test_a_score_that_fell_returns_to_the_policy_of_its_step(tmp_path: Path, scripted: Any) -> None:
    """Scores of steps 9 (offline), 20, 40 and 60; the third, known at 60, is too low."""
    options = {"offline_pretrain_updates": 9, "rollback_on_drop": 0.3, "eval_interval": 20, **ONE}
    options |= {"hidden_sizes": [8], "batch_size": 8, "dataset_kind": "random", "dataset_size": 100}
    config = TrainConfig(
        algo="rlpd",
        env_id="Pendulum-v1",
        env_kwargs={"max_episode_steps": 17},
        total_timesteps=100,
        checkpoint_interval=1_000,
        output_dir=str(tmp_path),
        algo_kwargs=options,
    )
    scripted(100, 90, 60, 90)
    result = train(config)
    assert result.stop_reason is not None
    assert "the score fell to 60, below 70" in result.stop_reason
    assert "the policy is that of step 20" in result.stop_reason
    assert result.checkpoint_path.name == "step_60"
    last, good = (tensors_of(result.run_dir / "checkpoints" / name) for name in ("last", "step_20"))
    networks = [name for name in good if name.startswith("networks.")]
    assert all(torch.equal(last[name], good[name]) for name in networks)
    assert result.metrics["eval/return_mean"] == 90  # of the policy that it went back to


def test_a_score_that_fell_at_the_very_end_is_not_kept_either(
    tmp_path: Path, scripted: Any, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"offline_pretrain_updates": 9, "rollback_on_drop": 0.3, "eval_interval": 20, **ONE}
    options |= {"hidden_sizes": [8], "batch_size": 8, "dataset_kind": "random", "dataset_size": 100}
    config = TrainConfig(
        algo="rlpd",
        env_id="Pendulum-v1",
        env_kwargs={"max_episode_steps": 17},
        total_timesteps=31,  # ends at step 40
        output_dir=str(tmp_path),
        algo_kwargs=options,
    )
    scripted(100, 90, 60)
    result = train(config)
    assert "the policy is that of step 20" in caplog.text
    last, good = (tensors_of(result.run_dir / "checkpoints" / name) for name in ("last", "step_20"))
    networks = [name for name in good if name.startswith("networks.")]
    assert all(torch.equal(last[name], good[name]) for name in networks)


# -- the process --------------------------------------------------------------------------------


def failing(pendulum_config: Any, how: str, **options: Any) -> TrainConfig:
    """An environment that fails in its second evaluation; evaluations take 3 to 6 steps."""
    return pendulum_config(
        "sac",
        env_id="tests.scripted_env:FailingEnv",
        env_kwargs={"after": 10**9, "evaluation": {"after": 9, "how": how}},
        eval_episodes=1,
        total_timesteps=90,
        checkpoint_interval=1_000,
        algo_kwargs=options,
    )


@pytest.mark.parametrize(
    ("how", "workers", "message"),
    [
        ("raise", 0, "FailingEnv failed: RuntimeError: the motor is stuck"),
        ("raise", 1, "FailingEnv failed: RuntimeError: the motor is stuck"),
        ("nan reward", 1, "rewards that are not finite"),
        ("die", 1, r"the evaluation process died \(exit code -9\)"),
    ],
)
def test_a_failing_evaluation_ends_the_run_with_a_checkpoint(
    how: str, workers: int, message: str, pendulum_config: Any
) -> None:
    config = failing(pendulum_config, how, eval_workers=workers)
    with pytest.raises(RunError, match=message) as caught:
        train(config)
    (run_dir,) = Path(config.output_dir).glob("*")
    assert f"rl-training resume {run_dir}" in str(caught.value)
    saved = json.loads((run_dir / "checkpoints/last/manifest.json").read_text())
    # evaluations at 15, 30, ...; a worker's is applied at the next
    failed_at = saved["progress"]["global_step"]
    assert failed_at in ((30, 45) if workers == 0 else (45, 60))
    assert not (run_dir / "result.json").exists()


@pytest.mark.parametrize("workers", [0, 1])
def test_a_run_whose_evaluation_failed_goes_on_with_it(
    workers: int, pendulum_config: Any, here: None
) -> None:
    """The environment is repaired, here by making it anew, and the run is as if it had not failed."""
    config = failing(pendulum_config, "raise", eval_workers=workers)
    env_kwargs = {"after": 10**9, "evaluation": {"after": 10**9, "how": "raise"}}
    whole = train(config.replace(env_kwargs=env_kwargs))
    (existing,) = Path(config.output_dir).glob("*")
    with pytest.raises(RunError, match="the motor is stuck"):
        train(config)
    (run_dir,) = set(Path(config.output_dir).glob("*")) - {existing}
    for _ in range(20):
        try:
            resume(run_dir)
            break
        except RunError:
            continue
    assert evaluations_of(run_dir) == evaluations_of(whole.run_dir)
    assert metrics_of(run_dir) == metrics_of(whole.run_dir)
    assert best_of(run_dir).name == best_of(whole.run_dir).name


def test_an_environment_that_only_this_process_knows_is_refused(pendulum_config: Any) -> None:
    gym.register("OnlyHere-v0", ScriptedEnv)
    try:
        config = pendulum_config("sac", env_id="OnlyHere-v0", env_kwargs={}, algo_kwargs=ONE)
        with pytest.raises(EnvError, match=r"no environment 'OnlyHere-v0'(.|\n)*eval_workers: 0"):
            train(config)
    finally:
        gym.registry.pop("OnlyHere-v0")
    assert not list(Path(config.output_dir).glob("*"))


def test_an_algorithm_of_the_training_script_is_refused(
    pendulum_config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = registry.get_algorithm_spec("bc")
    monkeypatch.setattr(spec.algorithm, "__module__", "__main__")
    with pytest.raises(ConfigError, match=r"defined in the script that trains.*eval_workers: 0"):
        train(pendulum_config("bc", algo_kwargs=ONE))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"eval_episodes": 0}, "eval_workers: needs evaluations, but eval_episodes is 0"),
        ({"env_id": None, "env_kwargs": {}}, "eval_workers: needs evaluations, but env_id is null"),
        ({"algo_kwargs": {"eval_workers": 2}}, "eval_workers: must be <= 1"),
    ],
)
def test_a_worker_without_work_is_refused(
    changes: dict[str, Any], message: str, pendulum_config: Any
) -> None:
    with pytest.raises(ConfigError, match=message):
        pendulum_config(**{"algo_kwargs": ONE, **changes})


SCRIPT = """
from rl_training.algorithms.registry import load_plugin
from rl_training.runtime import TrainConfig, train

load_plugin("own_bc.py")
train(TrainConfig(
    algo="own_bc", env_id="own_env:Noisy", total_timesteps=20, eval_episodes=1, output_dir="runs",
    algo_kwargs={"dataset_kind": "random", "dataset_size": 50, "hidden_sizes": [8],
                 "eval_interval": 10, "eval_workers": 1},
))
"""
OWN_BC = """
from rl_training.algorithms import Algorithm, AlgorithmConfig, register
from rl_training.models import DeterministicActor

class OwnConfig(AlgorithmConfig):
    pass

def actor_loss(nets, batch, noise, config):
    return {"actor_loss": (nets.actor(batch.obs) - batch.actions).square().mean((-2, -1))}

@register("own_bc")
class OwnAlgorithm(Algorithm[OwnConfig]):
    losses = {"actor": actor_loss}
    def build(self, spec, config):
        self.actor = DeterministicActor(spec.obs_dim, spec.action_dim, config.hidden_sizes)
"""
OWN_ENV = """
import sys
from tests.scripted_env import ScriptedEnv

class Noisy(ScriptedEnv):
    def reset(self, **options):
        print("reset")
        assert not sys.stdin.read()
        return super().reset(**options)
"""


def test_an_unguarded_script_with_its_own_parts_has_a_worker(tmp_path: Path) -> None:
    """The worker does not run the script again; what environments print does not disturb it."""
    for name, text in (("script", SCRIPT), ("own_bc", OWN_BC), ("own_env", OWN_ENV)):
        (tmp_path / f"{name}.py").write_text(text)
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    (run_dir,) = (tmp_path / "runs").glob("*")
    assert evaluations_of(run_dir)["steps"] == [10, 20]


def test_a_worker_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    """Also when that is killed in the middle of an evaluation."""
    script = (
        "import sys\n"
        "from rl_training.runtime import TrainConfig, execution, train\n"
        "class Tell(execution.EvaluationWorker):\n"
        "    def answer(self):\n"
        "        print(self._process.pid, flush=True)\n"
        "        return super().answer()\n"
        "execution.EvaluationWorker = Tell\n"
        "train(TrainConfig(algo='bc', env_id='Pendulum-v1', env_kwargs={'max_episode_steps': 99_999},"
        f" total_timesteps=20, eval_episodes=1000, output_dir={str(tmp_path)!r},"
        " algo_kwargs={'dataset_kind': 'random', 'dataset_size': 50, 'hidden_sizes': [8],"
        " 'eval_interval': 10, 'eval_workers': 1}))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    worker = int(process.stdout.readline())
    os.kill(worker, 0)  # it is there
    process.send_signal(signal.SIGKILL)
    process.communicate()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        status = Path(f"/proc/{worker}/status")
        if not status.exists() or "\nState:\tZ" in status.read_text():
            return
        time.sleep(0.05)
    os.kill(worker, signal.SIGKILL)
    pytest.fail("the worker goes on without the process that started it")
