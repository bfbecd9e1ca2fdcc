"""Environments in Ray actors: the same transitions, the same runs, and errors that name the environment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from tests.support.envs import ERRORS, ScriptedEnv
from tests.support.runs import assert_same_run, killed_run

from rl_training.cli.main import main
from rl_training.config import EnvError, RunError
from rl_training.envs import make_vector_env, ray_cluster, ray_envs
from rl_training.runtime import Callback, TrainConfig, TrainerState, resume, train

ray = pytest.importorskip("ray")
Cluster = pytest.importorskip("ray.cluster_utils").Cluster
pytestmark = pytest.mark.cluster
TALKATIVE, TROUBLED = "tests.support.envs:TalkativeEnv", "tests.support.envs:TroubledEnv"
OVERWRITING = "tests.support.envs:OverwritingEnv"


@pytest.fixture(scope="module", autouse=True)
def _own_ray() -> Iterator[None]:
    """Start Ray for this file alone, as large everywhere; the package uses the one that it finds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("RAY_ADDRESS", raising=False)
        ray_cluster.connect()
        yield
        ray.shutdown()


@pytest.fixture
def config(tmp_path: Path) -> Any:
    def make(**changes: Any) -> TrainConfig:
        options = {
            "vector_env": "ray",
            "learning_starts": 13,
            "batch_size": 8,
            "hidden_sizes": [8, 8],
            "eval_interval": 25,
            **changes.pop("algo_kwargs", {}),
        }
        values = {
            "algo": "sac",
            "env_id": "Pendulum-v1",
            "env_kwargs": {"max_episode_steps": 17},
            "num_envs": 2,
            "total_timesteps": 90,
            "eval_episodes": 1,
            "log_interval": 7,
            "checkpoint_interval": 20,
            "output_dir": str(tmp_path / "runs"),
            **changes,
        }
        return TrainConfig(**values, algo_kwargs=options)

    return make


@pytest.fixture
def trouble(tmp_path: Path) -> Path:
    return tmp_path / "trouble"


@pytest.fixture
def troubled(config: Any, trouble: Path) -> Any:
    """Make the configuration of a run whose environments do what the file `trouble` says."""

    def make(**changes: Any) -> TrainConfig:
        return config(**{"env_id": TROUBLED, "env_kwargs": {"trouble": str(trouble)}, **changes})

    return make


def run_of(config: TrainConfig) -> Path:
    (run_dir,) = Path(config.output_dir).glob("*")
    return run_dir


def assert_equal(first: Any, second: Any) -> None:
    """Compare nested results, with the types of their leaves."""
    assert type(first) is type(second)
    if isinstance(first, dict):
        assert list(first) == list(second)
        for key in first:
            assert_equal(first[key], second[key])
    elif isinstance(first, tuple):
        assert len(first) == len(second)
        for one, other in zip(first, second, strict=True):
            assert_equal(one, other)
    elif isinstance(first, np.ndarray):
        assert first.dtype == second.dtype
        assert first.shape == second.shape
        if first.dtype == object:
            assert_equal(tuple(first), tuple(second))
        else:
            np.testing.assert_array_equal(first, second)
    else:
        assert first == second


def pair_of(env_id: str, num_envs: int, mode: AutoresetMode, **options: Any) -> list[Any]:
    return [
        make_vector_env(env_id, num_envs, vector_env=kind, autoreset_mode=mode, **options)
        for kind in ("sync", "ray")
    ]


@pytest.mark.filterwarnings("ignore::UserWarning")  # gymnasium notices the shared array
@pytest.mark.parametrize("env_id", [TALKATIVE, OVERWRITING])
@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_steps_give_what_local_environments_give(
    mode: AutoresetMode, num_envs: int, env_id: str
) -> None:
    local, remote = pair_of(env_id, num_envs, mode, episode_seed=5)
    try:
        assert_equal(local.metadata, remote.metadata)
        assert local.observation_space == remote.observation_space
        assert local.action_space == remote.action_space
        assert_equal(local.reset(), remote.reset())
        rng = np.random.default_rng(0)
        for _ in range(30):
            actions = rng.uniform(-1, 1, (num_envs, 1)).astype(np.float32)
            expected, found = local.step(actions), remote.step(actions)
            assert_equal(expected, found)
            ended = expected[2] | expected[3]
            if mode is AutoresetMode.DISABLED and ended.any():
                pair = [envs.reset(options={"reset_mask": ended}) for envs in (local, remote)]
                assert_equal(*pair)
    finally:
        local.close()
        remote.close()


def test_seeds_calls_and_attributes_reach_the_environments() -> None:
    local, remote = pair_of("Pendulum-v1", 2, AutoresetMode.SAME_STEP)
    try:
        for seed in (3, [5, 7]):
            assert_equal(local.reset(seed=seed), remote.reset(seed=seed))
        for envs in (local, remote):
            envs.set_attr("g", [3.0, 4.0])
        assert remote.get_attr("g") == (3.0, 4.0)
        actions = np.ones((2, 1), np.float32)
        assert_equal(local.step(actions), remote.step(actions))
        assert_equal(local.call("has_wrapper_attr", "g"), remote.call("has_wrapper_attr", "g"))
    finally:
        local.close()
        remote.close()


def test_a_step_that_failed_leaves_nothing_to_the_next_one(trouble: Path) -> None:
    envs: Any = make_vector_env(
        TROUBLED, 2, {"trouble": str(trouble)}, vector_env="ray", autoreset_mode="SameStep"
    )
    try:
        first = envs.reset(seed=[1, 2])[0]
        trouble.write_text("raise 1")
        with pytest.raises(Exception, match="the motor is stuck"):
            envs.step(np.zeros((2, 1), np.float32))
        trouble.unlink()
        assert_equal(envs.reset(seed=[1, 2])[0], first)
    finally:
        envs.close()


@pytest.mark.parametrize("num_envs", [1, 2])
def test_a_run_has_the_same_bytes_wherever_its_environments_are(
    num_envs: int, config: Any, tmp_path: Path
) -> None:
    found = {}
    for kind in ("sync", "async", "ray"):
        settings = config(
            num_envs=num_envs, output_dir=str(tmp_path / kind), algo_kwargs={"vector_env": kind}
        )
        last = train(settings).run_dir / "checkpoints/last"
        found[kind] = {
            str(path.relative_to(last)): path.read_bytes()
            for path in sorted(last.rglob("*.safetensors"))
        }
    assert any(name.startswith("replay/") for name in found["ray"])
    assert found["ray"] == found["sync"] == found["async"]


@pytest.mark.parametrize("num_envs", [1, 3])
def test_killed_and_resumed_is_the_uninterrupted_local_run(
    num_envs: int, config: Any, tmp_path: Path
) -> None:
    whole = train(
        config(
            num_envs=num_envs, output_dir=str(tmp_path / "twin"), algo_kwargs={"vector_env": "sync"}
        )
    )
    run_dir = killed_run(config(num_envs=num_envs), tick=41)
    resume(run_dir)
    assert_same_run(whole.run_dir, run_dir)


def test_goal_environments_learn_the_same(config: Any, tmp_path: Path) -> None:
    changes = {"env_id": "RL-PointGoal-v0", "env_kwargs": {}, "total_timesteps": 140}
    runs = [
        train(
            config(
                output_dir=str(tmp_path / kind),
                algo_kwargs={"vector_env": kind, "her": True, "learning_starts": 110},
                **changes,
            )
        ).run_dir
        for kind in ("sync", "ray")
    ]
    assert_same_run(*runs)


@pytest.mark.parametrize("num_envs", [1, 2])
@pytest.mark.parametrize("how", [*ERRORS, "exit", "die", "nan observation"])
def test_a_run_whose_environment_failed_goes_on_as_the_same_run(
    how: str, num_envs: int, troubled: Any, trouble: Path, tmp_path: Path
) -> None:
    twin = train(troubled(num_envs=num_envs, output_dir=str(tmp_path / "twin"))).run_dir
    broken = troubled(num_envs=num_envs)
    trouble.write_text(f"{how} 17")
    with pytest.raises(RunError, match="is saved; to go on") as caught:
        train(broken)
    if how == "die":
        assert "environment 0 on the Ray node " in str(caught.value)
        assert "died: The actor is dead because its worker process has died" in str(caught.value)
    assert "Traceback" not in str(caught.value)
    trouble.unlink()
    resume(run_of(broken))
    assert_same_run(twin, run_of(broken))


@pytest.mark.parametrize("place", ["main thread", "another thread"])
def test_an_environment_that_hangs_ends_the_run_after_the_timeout(
    place: str, troubled: Any, trouble: Path
) -> None:
    broken = troubled(eval_episodes=0, algo_kwargs={"env_step_timeout": 1.5})
    trouble.write_text("hang 17")
    errors: list[str] = []

    def work() -> None:
        with pytest.raises(RunError) as caught:
            train(broken)
        errors.append(str(caught.value))

    if place == "main thread":
        work()
    else:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join(120)
        assert "environment 0 has not answered a step within 1.5 seconds" in errors[0]
    assert "env_step_timeout" in errors[0]
    trouble.unlink()
    assert resume(run_of(broken)).stop_reason == "total_timesteps"


class SignalAtTick(Callback):
    """Lets environments hang at the next step, and sends this process a signal while it waits."""

    def __init__(self, tick: int, trouble: Path) -> None:
        self.left, self.trouble = tick, trouble

    def on_collect_end(self, state: TrainerState, env_steps: int) -> None:
        self.left -= 1
        if self.left == 0:
            self.trouble.write_text(f"hang {state.global_step // 2 + 1}")
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()


def test_ctrl_c_ends_the_wait_for_an_environment_and_the_run_goes_on_as_the_same(
    troubled: Any, trouble: Path, tmp_path: Path
) -> None:
    twin = train(troubled(output_dir=str(tmp_path / "twin"))).run_dir
    broken = troubled()
    assert train(broken, callbacks=[SignalAtTick(12, trouble)]).stop_reason == "interrupted"
    trouble.unlink()
    resume(run_of(broken))
    assert_same_run(twin, run_of(broken))


def test_an_environment_that_cannot_be_closed_is_an_error_after_all_is_saved(
    troubled: Any, trouble: Path
) -> None:
    broken = troubled(eval_episodes=0)
    trouble.write_text("close 1000")
    with pytest.raises(RunError, match=r"the door is stuck \(while closing"):
        train(broken)


class LambdaInfoEnv(ScriptedEnv):
    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, _ = super().step(action)
        return obs, reward, terminated, truncated, {"lock": threading.Lock()}


def test_infos_that_cannot_be_sent_are_named() -> None:
    envs: Any = make_vector_env(f"{__name__}:LambdaInfoEnv", 1, vector_env="ray")
    try:
        envs.reset(seed=0)
        with pytest.raises(RunError, match=r"environment 0 on the Ray node .*pickle"):
            envs.step(np.zeros((1, 1), np.float32))
    finally:
        envs.close()


def test_a_cluster_without_room_is_an_error_before_anything_is_written(
    config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_cluster, "PLACE_SECONDS", 2)
    cores = ray.cluster_resources()["CPU"]
    crowd = config(num_envs=int(cores * 10) + 1, algo_kwargs={"buffer_capacity": 10_000})
    with pytest.raises(EnvError, match=f"found no room for {crowd.num_envs} environments"):
        train(crowd)
    assert not Path(crowd.output_dir).exists()


def test_closing_gives_everything_back() -> None:
    envs = make_vector_env("Pendulum-v1", 3, vector_env="ray")
    assert ray.available_resources()["CPU"] < ray.cluster_resources()["CPU"]
    envs.close()
    deadline = time.monotonic() + 60
    while ray.available_resources()["CPU"] < ray.cluster_resources()["CPU"]:
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        ("Pendulm-v1", r"did you mean 'Pendulum-v1'\? \(on the Ray node "),
        ("no_such_module:Env", r"there is no module 'no_such_module'; .* \(on the Ray node "),
    ],
)
def test_an_environment_that_cannot_be_made_is_one_line(env_id: str, message: str) -> None:
    with pytest.raises(EnvError, match=message) as caught:
        make_vector_env(env_id, 2, vector_env="ray")
    assert "\n" not in str(caught.value)


def test_a_node_that_lacks_a_module_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_here.py").write_text(
        "from rl_training.envs.ray_member import Member as Base\nclass Member(Base):\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import only_here  # type: ignore[import-not-found]

    monkeypatch.setattr(ray_envs, "Member", only_here.Member)
    with pytest.raises(EnvError, match="No module named 'only_here'") as caught:
        make_vector_env("Pendulum-v1", 2, vector_env="ray")
    assert "\n" not in str(caught.value)


def test_an_environment_that_only_this_process_has_registered_is_found() -> None:
    def factory(limit: int = 3) -> gym.Env[Any, Any]:
        return gym.wrappers.TimeLimit(ScriptedEnv(), limit)

    gym.register(id="MyEnv-v0", entry_point=factory)
    try:
        local, remote = pair_of("MyEnv-v0", 2, AutoresetMode.SAME_STEP, episode_seed=1)
        for envs in (local, remote):
            envs.reset()
        for _ in range(5):
            actions = np.zeros((2, 1), np.float32)
            assert_equal(local.step(actions), remote.step(actions))
        local.close()
        remote.close()
    finally:
        gym.registry.pop("MyEnv-v0")


def test_another_version_on_a_node_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(
        ray_envs, "versions", lambda: {"numpy": "1.0", "gymnasium": gym.__version__}
    )
    make_vector_env("Pendulum-v1", 1, vector_env="ray").close()
    (warning,) = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert f"uses numpy {np.__version__}, but this process 1.0" in warning


def start(
    directory: Path, *words: str, vector_env: str = "ray", **environment: str
) -> subprocess.Popen[str]:
    """Start a run from the command line, in a process group of its own."""
    directory.mkdir(exist_ok=True)
    line = [
        "train", "sac/pendulum", "num_envs=2", f"vector_env={vector_env}", "learning_starts=50", "hidden_sizes=[8,8]",
        "--output-dir", "runs", *words,
    ]  # fmt: skip
    paths = [str(Path(ray_envs.__file__).parents[2]), str(Path(__file__).parents[2])]
    paths += os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return subprocess.Popen(
        [sys.executable, "-m", "rl_training", *line],
        cwd=directory, start_new_session=True, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment},
    )  # fmt: skip


def run_begun(process: subprocess.Popen[str], directory: Path) -> Path:
    """Wait until a run has written its first metrics; return its directory."""
    deadline = time.monotonic() + 120
    while not list(directory.glob("runs/*/metrics.jsonl")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    (run_dir,) = (directory / "runs").glob("*")
    return run_dir


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_group_saves_a_run_and_ends_the_ray_that_it_started(
    number: signal.Signals, tmp_path: Path
) -> None:
    words = ["total_timesteps=100000", "checkpoint_interval=100000", "eval_episodes=0"]
    process = start(tmp_path, *words)
    try:
        run_dir = run_begun(process, tmp_path)
        time.sleep(0.3)
        os.killpg(process.pid, number)
        output, errors = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 130, output + errors
    assert "Ray, started on this machine" in output + errors
    saved = json.loads((run_dir / "checkpoints/last/manifest.json").read_text())
    total = saved["progress"]["global_step"] + 20
    assert resume(run_dir, total_timesteps=total).stop_reason == "total_timesteps"


def test_a_run_that_lost_a_node_goes_on_as_the_same_run(tmp_path: Path) -> None:
    words = ["total_timesteps=6000", "eval_episodes=1", "eval_interval=3000", "log_interval=100"]
    whole = start(tmp_path / "twin", *words, vector_env="sync")
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        node = cluster.add_node(num_cpus=1)
        process = start(tmp_path / "broken", *words, RAY_ADDRESS=cluster.address)
        run_dir = run_begun(process, tmp_path / "broken")
        cluster.remove_node(node, allow_graceful=False)
        output, errors = process.communicate(timeout=120)
    finally:
        cluster.shutdown()
    assert process.returncode == 1, output + errors
    last = errors.strip().splitlines()
    assert any("environment " in line and " on the Ray node " in line for line in last), errors
    assert any("rl-training resume" in line for line in last), errors
    assert main(["resume", str(run_dir)]) == 0
    assert whole.wait(120) == 0
    assert_same_run(run_begun(whole, tmp_path / "twin"), run_dir)


def test_modules_of_the_working_directory_are_found_last(tmp_path: Path) -> None:
    for name in ("torch", "numpy", "gymnasium", "json", "typing", "socket"):
        text = f"open(r'{tmp_path / name}.ran', 'w').close()\nraise SystemExit('hostile')\n"
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "my_env.py").write_text("from tests.support.envs import ScriptedEnv as MyEnv\n")
    process = start(tmp_path, "env_id=my_env:MyEnv", "total_timesteps=80", "eval_episodes=0")
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, output + errors
    assert not list(tmp_path.glob("*.ran"))


def test_an_address_where_no_ray_is_listening_is_one_line(tmp_path: Path) -> None:
    process = start(tmp_path, "total_timesteps=80", RAY_ADDRESS="127.0.0.1:1")
    try:
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 2, errors
    assert len(errors.strip().splitlines()) == 1
    assert "vector_env: ray cannot connect to Ray at '127.0.0.1:1': " in errors
