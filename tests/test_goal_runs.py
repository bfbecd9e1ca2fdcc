"""Runs with goals: every learner, exact resume, what is refused, and what reads a policy."""

from __future__ import annotations

import importlib.util
import json
import random
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import rl_training
from rl_training.cli.main import main
from rl_training.config import ConfigError, DatasetError, EnvError
from rl_training.data import HERReplayBuffer, TransitionDataset, load_transition_dataset
from rl_training.envs.goal_envs import PointGoalEnv
from rl_training.runtime import TrainConfig, resume, train
from rl_training.runtime.assemble import new_run
from rl_training.runtime.collect import replay_dataset
from tests.support.data import make_fields
from tests.support.runs import assert_same_run, killed_run

needs_robotics = pytest.mark.skipif(
    importlib.util.find_spec("gymnasium_robotics") is None, reason="needs the extra robotics"
)
POINT, BITS = "RL-PointGoal-v0", "RL-BitFlip-v0"


@pytest.fixture
def config(tmp_path: Path) -> Any:
    def make(algo: str = "sac", **changes: Any) -> TrainConfig:
        kwargs = {
            "hidden_sizes": [8, 8],
            "batch_size": 8,
            "learning_starts": 13,
            "train_frequency": 1,
            "gradient_updates_per_step": 1,
            "buffer_capacity": 50,  # the ring goes round
            "eval_interval": 25,
            **({} if algo == "her" else {"her": True}),
            **changes.pop("algo_kwargs", {}),
        }
        values = {
            "algo": algo,
            "env_id": BITS if algo == "dqn" else POINT,
            "env_kwargs": {"bits": 4} if algo == "dqn" else {"max_episode_steps": 11},
            "total_timesteps": 90,
            "eval_episodes": 1,
            "log_interval": 7,
            "checkpoint_interval": 20,
            "output_dir": str(tmp_path / "runs"),
            **changes,
        }
        return TrainConfig(**values, algo_kwargs=kwargs)

    return make


SHAPED = {"max_episode_steps": 11, "wrappers": {"reward": {"scale": 2.0, "shift": 1.0}}}
CASES: dict[str, dict[str, Any]] = {
    "three environments": {"algo": "her", "num_envs": 3},
    "one environment": {"algo": "her", "algo_kwargs": {"target_update_interval": 3}},
    "processes": {"num_envs": 2, "algo_kwargs": {"vector_env": "async"}},
    "the final goal": {"algo": "td3", "algo_kwargs": {"goal_selection_strategy": "final"}},
    "any goal": {"algo": "ddpg", "algo_kwargs": {"goal_selection_strategy": "episode"}},
    "choices": {"algo": "dqn", "num_envs": 3, "algo_kwargs": {"target_update_interval": 7}},
    "discrete sac": {"env_id": BITS, "env_kwargs": {"bits": 4}},
    "joint updates": {"algo": "redq", "algo_kwargs": {"gradient_updates_per_step": 3}},
    "quantiles": {"algo": "tqc", "algo_kwargs": {"critic_hidden_sizes": [8], "num_quantiles": 5}},
    "rewards shaped": {"num_envs": 3, "env_kwargs": SHAPED},
}


@pytest.mark.parametrize("case", CASES)
def test_killed_at_any_tick_and_resumed_is_the_uninterrupted_run(case: str, config: Any) -> None:
    changes = dict(CASES[case])
    settings = config(changes.pop("algo", "sac"), **changes)
    whole = train(settings)
    run_dir = killed_run(settings, tick=random.Random(case).randrange(25, 60))
    resume(run_dir)
    assert_same_run(whole.run_dir, run_dir)
    assert whole.metrics["eval/success_rate"] in (0, 1)


@needs_robotics
@pytest.mark.parametrize("env_id", ["FetchReach-v4", "PointMaze_UMaze-v3"])
def test_robots_run_and_go_on_in_the_middle_of_an_episode(env_id: str, config: Any) -> None:
    settings = config("her", env_id=env_id, num_envs=2, algo_kwargs={"clip_targets": False})
    whole = train(settings)
    run_dir = killed_run(settings, tick=51)
    resume(run_dir)
    assert_same_run(whole.run_dir, run_dir)
    assert whole.metrics["eval/success_rate"] in (0, 1)


@needs_robotics
def test_targets_of_a_maze_are_not_clipped(config: Any) -> None:
    """Its rewards are 0 and 1."""
    settings = {"env_id": "PointMaze_UMaze-v3", "env_kwargs": {}}
    with pytest.raises(ConfigError, match="PointMaze_UMaze-v3 gives 1"):
        new_run(config("her", **settings))
    settings["env_kwargs"] = {"wrappers": {"reward": {"shift": -1.0}}}
    new_run(config("her", **settings)).experience.close()


@pytest.mark.parametrize("vector_env", ["sync", "async"])
def test_the_replay_holds_what_happened(vector_env: str, config: Any) -> None:
    """Positions, goals and outcomes of a point whose every move can be recomputed."""
    settings = config(
        num_envs=3,
        env_kwargs=SHAPED,
        algo_kwargs={"buffer_capacity": 1_000, "vector_env": vector_env, "learning_starts": 900},
    )
    run = new_run(settings)
    try:
        for _ in range(40):
            next(run.experience)
        buffer = run.experience.buffer  # type: ignore[attr-defined]
        assert isinstance(buffer, HERReplayBuffer)
        rows, layout = buffer._rows[:120].numpy(), buffer.layout
        position, goal = rows[:, 0:2], rows[:, layout.goal]
        outcome = rows[:, layout.next_obs][:, :2]
        moved = np.clip(position + np.float32(0.1) * rows[:, layout.actions], -1, 1)
        np.testing.assert_allclose(outcome, moved, atol=1e-6)
        assert (rows[:, layout.achieved] == outcome).all()
        assert (rows[:, layout.next_goal] == goal).all()
        near = np.linalg.norm(outcome - goal, axis=1) <= 0.05
        assert (rows[:, layout.reward] == np.where(near, 1.0, -1.0)).all()
        assert not rows[:, layout.termination].any()
        assert np.flatnonzero(rows[0::3, layout.truncation]).tolist() == [10, 21, 32]
        # and a batch holds what would have happened
        batch = buffer.sample(500, generator=torch.Generator().manual_seed(0))
        near = (batch.next_obs[:, :2] - batch.next_obs[:, 2:4]).norm(dim=1) <= 0.05
        assert torch.equal(batch.obs[:, :2], batch.obs[:, 4:])
        assert torch.equal(batch.next_obs[:, :2], batch.next_obs[:, 4:])
        assert torch.equal(batch.rewards, torch.where(near, 1.0, -1.0))
        assert near.float().mean() > 0.1
    finally:
        run.experience.close()


def test_a_log_without_achieved_goals_is_too_narrow_for_a_new_policy() -> None:
    log = TransitionDataset.from_dict(make_fields(obs_dim=4))
    settings = TrainConfig(algo="bc", env_id=POINT)
    message = "of width 4, but RL-PointGoal-v0 has 6: observation, desired_goal, achieved_goal"
    with pytest.raises(DatasetError, match=message):
        new_run(settings, dataset=log)


def logged_goals(directory: Path) -> dict[str, Any]:
    path = directory / "log.npz"
    words = ["--env", POINT, "--steps", "60", "-o", str(path)]
    assert main(["data", "collect", *words]) == 0
    return {"dataset_kind": "npz", "dataset_path": str(path)}


@pytest.mark.parametrize("algo", ["cql", "rlpd"])
def test_logged_goals_are_joined_by_collected_ones(algo: str, config: Any, tmp_path: Path) -> None:
    """Without hindsight; a run that is interrupted goes on exactly."""
    options = {**logged_goals(tmp_path), "her": False, "offline_pretrain_updates": 5}
    if algo == "cql":
        options |= {"regime": "offline_to_online", "cal_ql": True}
    settings = config(algo, num_envs=2, algo_kwargs=options, total_timesteps=60)
    whole = train(settings)
    run_dir = killed_run(settings, tick=45)
    resume(run_dir)
    assert_same_run(whole.run_dir, run_dir)
    log = replay_dataset(run_dir)
    assert torch.equal(log.next_obs[:, :2], log.next_obs[:, 4:])
    assert log.obs_dim == 6


def test_an_offline_policy_for_goals_goes_on_online(config: Any, tmp_path: Path) -> None:
    """Also one that was learned without an environment."""
    options = {
        "dataset_kind": "npz",
        "hidden_sizes": [8],
        "batch_size": 8,
        **logged_goals(tmp_path),
    }
    for env_id in (POINT, None):
        offline = TrainConfig(
            algo="td3_bc",
            env_id=env_id,
            total_timesteps=3,
            eval_episodes=1,
            output_dir=str(tmp_path / "offline"),
            algo_kwargs=options,
        )
        run_dir = train(offline).run_dir
        result = resume(run_dir, online=True, env_id=POINT, total_timesteps=30)
        assert result.metrics["rollout/buffer_size"] == 30


class EndsAtGoal(PointGoalEnv):
    """Ends an episode at the goal, as the mazes of gymnasium-robotics can, and at the box's edge."""

    def step(self, action: Any) -> Any:
        obs, reward, _, truncated, info = super().step(action)
        reached = self.compute_terminated(self.state, self.goal, info)
        return obs, reward, reached or bool(np.abs(self.state).max() >= 1), truncated, info

    def compute_terminated(self, achieved: Any, desired: Any, info: Any) -> bool:
        return bool(np.linalg.norm(achieved - desired) <= self.threshold)


@pytest.mark.parametrize("vector_env", ["sync", "async"])
def test_a_goal_in_hindsight_ends_an_episode_as_the_environment_would(
    vector_env: str, config: Any
) -> None:
    """A batch of relabelled transitions, one by one against the environment's rule."""
    env_kwargs = {"threshold": 0.1, "max_episode_steps": 11}
    options: dict[str, Any] = {
        "buffer_capacity": 1_000,
        "learning_starts": 900,
        "vector_env": vector_env,
    }
    changes = {"env_id": f"{__name__}:EndsAtGoal", "env_kwargs": env_kwargs, "num_envs": 3}
    options |= {"her_ratio": 1.0, "goal_selection_strategy": "episode"}
    run = new_run(config("sac", **changes, algo_kwargs=options))
    try:
        for _ in range(150):
            next(run.experience)
        buffer = run.experience.buffer  # type: ignore[attr-defined]
        batch = buffer.sample(400, generator=torch.Generator().manual_seed(0))
        near = (batch.next_obs[:, 4:] - batch.next_obs[:, 2:4]).norm(dim=1) <= 0.1
        edge = batch.next_obs[:, 4:].abs().amax(1) >= 1
        assert torch.equal(batch.terminations, (near | edge).float())
        assert torch.equal(batch.rewards, near.float() - 1)
        assert 0.1 < near.float().mean() < 0.9
        assert (edge & ~near).any()
    finally:
        run.experience.close()


# -- what is refused -----------------------------------------------------------------------------


class NoRewards(gym.Env[Any, Any]):
    part = gym.spaces.Box(-1, 1, (2,), np.float32)
    observation_space = gym.spaces.Dict(observation=part, achieved_goal=part, desired_goal=part)
    action_space = gym.spaces.Box(-1, 1, (2,), np.float32)


@pytest.mark.parametrize(
    ("algo", "changes", "message"),
    [
        ("sac", {"algo_kwargs": {"her": False}}, f"{POINT} has goal observations .*set her: true"),
        ("her", {"algo_kwargs": {"her": False}}, "set her: true"),
        ("her", {"env_id": "Pendulum-v1"}, "her: true needs goal observations .*Pendulum-v1 has"),
        ("sac", {"env_id": "CartPole-v1"}, "needs goal observations .*but CartPole-v1 has none"),
        ("td3", {"env_id": f"{__name__}:NoRewards"}, "NoRewards has no method compute_reward"),
        ("her", {"env_id": BITS, "env_kwargs": {}}, "her needs continuous actions"),
    ],
)
def test_environments_that_do_not_fit_are_refused_before_anything_is_written(
    algo: str, changes: Any, message: str, config: Any
) -> None:
    settings = config(algo, **changes)
    with pytest.raises(EnvError, match=message):
        train(settings)
    assert not Path(settings.output_dir).exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_step": 2}, "algo_kwargs.n_step: her: true replaces the reward of one step"),
        ({"her": False, "her_ratio": 0.5}, "algo_kwargs.her_ratio: has no effect without her"),
        (
            {"her": False, "goal_selection_strategy": "final"},
            "algo_kwargs.goal_selection_strategy: has no effect without her",
        ),
        ({"her_ratio": 1.5}, "her_ratio: must be <= 1"),
        ({"goal_selection_strategy": "futur"}, "did you mean 'future'"),
        ({"her": 1}, "her: expected true or false"),
    ],
)
def test_wrong_settings_are_named(options: dict[str, Any], message: str, config: Any) -> None:
    with pytest.raises(ConfigError, match=message):
        config(algo_kwargs=options)


def test_hindsight_is_for_online_training() -> None:
    options = {"regime": "offline_to_online", "dataset_kind": "npz", "dataset_path": "log.npz"}
    with pytest.raises(ConfigError, match=r"algo_kwargs.her: logged transitions keep their goals"):
        TrainConfig(algo="td3_bc", env_id=POINT, algo_kwargs={**options, "her": True})


def test_priorities_and_hindsight_do_not_go_together(config: Any) -> None:
    with pytest.raises(ConfigError, match="prioritized: her: true draws uniformly"):
        config("dqn", algo_kwargs={"prioritized": True})
    with pytest.raises(ConfigError, match="her: is for collecting, but bc trains on logged data"):
        TrainConfig(algo="bc", algo_kwargs={"her": True})


@pytest.mark.parametrize(
    ("shaping", "given"), [({"shift": 1.0}, "1"), ({"scale": 10.0}, "-10"), ({"shift": -1.0}, "-2")]
)
def test_targets_are_not_clipped_to_a_range_that_rewards_leave(
    shaping: Any, given: str, config: Any
) -> None:
    changes = {"env_kwargs": {"wrappers": {"reward": shaping}}}
    with pytest.raises(ConfigError, match=f"clip_targets: is for .*{POINT} gives {given}"):
        new_run(config("her", **changes))
    new_run(config("her", **changes, algo_kwargs={"clip_targets": False})).experience.close()


# -- what reads a policy or makes logs -----------------------------------------------------------


def test_a_policy_takes_goal_observations_in_every_form(
    config: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    managed = rl_training.HER(config("her"))
    run_dir = managed.learn().run_dir
    obs, _ = gym.make(POINT).reset(seed=0)
    flat = np.concatenate([obs["observation"], obs["desired_goal"], obs["achieved_goal"]])
    action = managed.predict(obs)
    assert action.shape == (2,)
    assert (managed.predict(flat) == action).all()
    batch = {key: np.stack([value, value]) for key, value in obs.items()}
    np.testing.assert_allclose(managed.predict(batch), [action, action], rtol=1e-6)
    with pytest.raises(ValueError, match="desired_goal is missing"):
        managed.predict({"observation": obs["observation"]})
    with pytest.raises(ValueError, match="achieved_goal is missing"):
        managed.predict({key: obs[key] for key in ("observation", "desired_goal")})
    tensors = {key: torch.tensor(value, requires_grad=True) for key, value in obs.items()}
    assert (managed.predict(tensors) == action).all()
    with pytest.raises(ValueError, match="goals of 2 numbers; desired_goal has 3"):
        managed.predict({**obs, "observation": obs["observation"][:1], "desired_goal": np.ones(3)})
    with pytest.raises(ValueError, match=r"must be vectors, .* got shapes \(2,\), \(\), \(2,\)"):
        managed.predict({**obs, "desired_goal": 0.5})
    assert managed.evaluate(3)["eval/success_rate"] <= 1
    assert (rl_training.HER.load(run_dir).predict(obs) == action).all()
    capsys.readouterr()
    written = json.dumps({key: value.tolist() for key, value in obs.items()})
    assert main(["predict", str(run_dir), "--obs", written]) == 0
    assert json.loads(capsys.readouterr().out) == pytest.approx(action.tolist(), rel=1e-6)
    assert main(["predict", str(run_dir), "--obs", '{"observation": [1, 2]}']) == 2
    assert main(["eval", str(run_dir), "--episodes", "2"]) == 0


def test_logs_of_goal_environments(config: Any, tmp_path: Path) -> None:
    """Random, of a policy, and of a replay; offline algorithms learn from all of them."""
    run_dir = train(config(num_envs=2)).run_dir
    sources = {
        "random": ["--env", POINT, "--steps", "60"],
        "policy": ["--checkpoint", str(run_dir), "--steps", "60"],
        "replay": ["--from-run", str(run_dir)],
    }
    for name, words in sources.items():
        path = tmp_path / f"{name}.npz"
        assert main(["data", "collect", *words, "-o", str(path)]) == 0
        assert main(["data", "check", str(path), "--env", POINT]) in (0, 1)
        log = load_transition_dataset("npz", dataset_path=str(path))
        assert log.obs_dim == 6
        assert torch.equal(log.obs[:, 2:4], log.next_obs[:, 2:4])  # the goal of an episode
        assert torch.equal(log.next_obs[:, :2], log.next_obs[:, 4:])  # where the point is
        offline = TrainConfig(
            algo="bc",
            env_id=POINT,
            total_timesteps=3,
            eval_episodes=1,
            output_dir=str(tmp_path / "offline"),
            algo_kwargs={"dataset_kind": "npz", "dataset_path": str(path), "batch_size": 4},
        )
        assert train(offline).metrics["eval/success_rate"] in (0, 1)
    assert len(log) == 50
    generated = offline.replace(algo_kwargs={"dataset_kind": "random", "dataset_size": 40})
    assert train(generated).stop_reason == "total_timesteps"
