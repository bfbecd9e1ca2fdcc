"""From logged data to collecting: what batches hold, when environments are touched, exact resume."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.envs.classic_control import PendulumEnv

from rl_training import api
from rl_training.cli.main import main
from rl_training.config import ConfigError
from rl_training.data import Batch, TransitionDataset
from rl_training.data.offline_to_online_config import RatioSchedule
from rl_training.runtime import Callback, TrainConfig, TrainerState, resume, train
from rl_training.runtime.assemble import new_run
from rl_training.runtime.commands import open_online, open_run
from rl_training.runtime.evaluation.evaluator import Evaluation, Evaluator
from rl_training.runtime.experience.mixture import share
from rl_training.runtime.run import Run
from tests.support.envs import ScriptedEnv, length_of, reward_of
from tests.support.runs import KillAtTick, Killed, assert_same_run, tensors_of

SCRIPTED = "tests.support.envs:ScriptedEnv"
TAG = -7.0  # no scripted environment has this identity


@pytest.fixture
def logged() -> TransitionDataset:
    """Forty episodes of five steps, in a row; every observation is tagged."""
    rng = np.random.default_rng(0)
    obs = np.stack([np.full(200, TAG), np.arange(200) % 5], 1)
    return TransitionDataset(
        obs=obs,
        actions=rng.uniform(-2, 2, (200, 1)).astype(np.float32),
        rewards=np.where(np.arange(200) < 5, 9.0, 10.0),  # one episode is worse
        next_obs=obs + np.array([0, 1]),
        terminations=np.zeros(200, bool),
        truncations=np.arange(200) % 5 == 4,
    )


@pytest.fixture
def config(tmp_path: Path) -> Any:
    def make(algo: str = "rlpd", **changes: Any) -> TrainConfig:
        kwargs = {
            "hidden_sizes": [8, 8],
            "batch_size": 12,
            "learning_starts": 6,
            "buffer_capacity": 30,
            "eval_interval": 25,
            **changes.pop("algo_kwargs", {}),
        }
        if algo == "rlpd":
            kwargs = {"gradient_updates_per_step": 3, "num_critics": 3, **kwargs}
        else:
            kwargs["regime"] = "offline_to_online"
        values = {
            "algo": algo,
            "env_id": SCRIPTED,
            "total_timesteps": 60,
            "eval_episodes": 1,
            "log_interval": 7,
            "checkpoint_interval": 10,
            "output_dir": str(tmp_path / "runs"),
            **changes,
        }
        return TrainConfig(**values, algo_kwargs=kwargs)

    return make


def batches_of(config: TrainConfig, dataset: TransitionDataset, ticks: int) -> list[Batch]:
    run = new_run(config, dataset=dataset)
    found = [
        tick for tick in (next(run.experience) for _ in range(ticks)) if isinstance(tick, Batch)
    ]
    run.experience.close()
    return found


@pytest.mark.parametrize(("ratio", "expected"), [(0.5, 6), (0.25, 3), (0.0, 0), (1.0, 12)])
def test_every_part_of_a_joint_batch_holds_the_ratio(
    ratio: float, expected: int, config: Any, logged: TransitionDataset
) -> None:
    joint = batches_of(config(algo_kwargs={"offline_batch_ratio": ratio}), logged, 40)
    assert joint
    for batch in joint:
        assert len(batch) == 36
        for part in batch.parts(3):
            assert int((part.obs[:, 0] == TAG).sum()) == expected


def test_without_a_ratio_rows_are_drawn_as_from_one_buffer(
    config: Any, logged: TransitionDataset
) -> None:
    options = {"batch_size": 3_000, "buffer_capacity": 3_000, "normalize_observations": False}
    settings = config("awac", algo_kwargs=options)
    batches = batches_of(settings, logged, 100)
    tagged = (batches[-1].obs[:, 0] == TAG).float().mean().item()
    collected = 6 + len(batches)
    assert tagged == pytest.approx(200 / (200 + collected), abs=0.03)


def test_the_ratio_may_follow_a_schedule(config: Any, logged: TransitionDataset) -> None:
    schedule = {"start": 1.0, "final": 0.0, "horizon": 40}
    batches = batches_of(
        config(algo_kwargs={"offline_batch_ratio": schedule, "learning_starts": 0}), logged, 80
    )
    tagged = [int((batch.parts(3)[0].obs[:, 0] == TAG).sum()) for batch in batches]
    assert tagged[0] == 12
    assert tagged == sorted(tagged, reverse=True)
    assert tagged[-1] == 0
    cosine = RatioSchedule(kind="cosine", start=0.8, final=0.2)
    assert share(cosine, 50, 100) == pytest.approx(0.5)
    assert share(cosine, 25, 100) == pytest.approx(0.2 + 0.6 * (0.5 + 0.5**0.5 / 2))


def test_collected_rows_have_the_datasets_rewards_and_normalisation(
    config: Any, logged: TransitionDataset
) -> None:
    options = {"reward_scale": 0.1, "reward_shift": 1.0, "reward_clip_max": 50.0}
    options |= {"normalize_observations": True}
    run = new_run(config(algo_kwargs=options), dataset=logged)
    batch = next(tick for tick in iter(run.experience.__next__, None) if isinstance(tick, Batch))
    mean, std = run.policy.normalizer.mean, run.policy.normalizer.std  # type: ignore[union-attr]
    obs = batch.obs * std + mean
    mine = (obs[:, 0] - TAG).abs() > 0.5
    identity, time = obs[mine].T
    expected = (0.1 * (identity + 0.1 * time + 0.02 * batch.actions[mine, 0]) + 1).clamp_max(50.0)
    torch.testing.assert_close(batch.rewards[mine], expected, atol=0.05, rtol=0.01)
    assert set(batch.rewards[~mine].round(decimals=4).tolist()) <= {1.9, 2.0}
    run.experience.close()


class WholeEnv(ScriptedEnv):
    """Rewards are whole numbers that depend on the observation alone."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = whole_reward(self.identity, self.time)
        obs, _, *rest = super().step(action)
        return obs, reward, *rest  # type: ignore[return-value]


def whole_reward(identity: int, time: int) -> float:
    return float(identity % 7 + 3 * time - 9)


def log_of_all_episodes() -> TransitionDataset:
    """Every transition that `WholeEnv` can give, with its raw reward."""
    rows = [(i, t) for i in range(1_000) for t in range(length_of(i))]
    obs = np.float32(rows)
    ends = np.array([t == length_of(i) - 1 for i, t in rows])
    odd = obs[:, 0] % 2 == 1
    return TransitionDataset(
        obs=obs,
        actions=np.random.default_rng(0).uniform(-2, 2, (len(rows), 1)).astype(np.float32),
        rewards=np.array([whole_reward(i, t) for i, t in rows]),
        next_obs=obs + np.float32([0, 1]),
        terminations=ends & odd,
        truncations=ends & ~odd,
    )


@pytest.mark.parametrize(
    "options",
    [{}, {"reward_scale": 3.0, "reward_shift": -0.7, "reward_clip_max": 4.0}, {"normalize_rewards": True}],
)  # fmt: skip
def test_reward_wrappers_shape_logged_and_collected_rows_alike(
    config: Any, options: dict[str, Any]
) -> None:
    """Equal transitions have equal rewards and returns to the bit, wherever they come from."""
    kwargs = {"cal_ql": True, "batch_size": 64, "buffer_capacity": 64, **options}
    kwargs |= {"normalize_observations": False, "offline_batch_ratio": 0.25}
    wrappers = {"reward": {"scale": 0.3, "shift": 0.11, "clip_min": -1.9, "clip_max": 1.7}}
    settings = config(
        "cql",
        env_id=f"{__name__}:WholeEnv",
        env_kwargs={"wrappers": wrappers},
        algo_kwargs=kwargs,
    )
    run = new_run(settings, dataset=log_of_all_episodes())
    logged = run.data.dataset.learning  # type: ignore[union-attr]
    everything = logged.gather(range(len(logged)))
    known = {
        tuple(place): (reward, total)
        for place, reward, total in zip(
            everything.obs.tolist(),
            everything.rewards.tolist(),
            everything.returns.tolist(),  # type: ignore[union-attr]
            strict=True,
        )
    }
    assert len({reward for reward, _ in known.values()}) > 5
    compared = 0
    for batch in (
        tick for tick in (next(run.experience) for _ in range(60)) if isinstance(tick, Batch)
    ):
        assert batch.returns is not None
        for place, reward, total in zip(
            batch.obs.tolist(), batch.rewards.tolist(), batch.returns.tolist(), strict=True
        ):
            expected = known[tuple(place)]
            assert reward == expected[0]
            if place[0] % 2 == 1 and total > -np.inf:  # an episode that terminates, and has
                assert total == expected[1]
                compared += 1
    assert compared > 100
    run.experience.close()


class NoEnv(ScriptedEnv):
    """May be looked at, but not used."""

    def reset(self, **_: Any) -> Any:
        raise AssertionError("the environment was touched")


def test_pretraining_touches_no_environment(config: Any, logged: TransitionDataset) -> None:
    settings = config(
        env_id="tests.test_offline_to_online:NoEnv",
        eval_episodes=0,
        algo_kwargs={"offline_pretrain_updates": 20, "max_updates": 20},
    )
    result = train(settings, dataset=logged)
    assert result.stop_reason == "max_updates"
    assert result.metrics["rollout/pretrain_updates"] == 20
    assert result.metrics["rollout/offline_rows_per_batch"] == 12


def test_collected_rows_make_room_and_logged_ones_stay(
    config: Any, logged: TransitionDataset
) -> None:
    before = logged.obs.clone()
    result = train(config(), dataset=logged)
    assert result.metrics["rollout/buffer_size"] == 30
    assert result.metrics["rollout/dataset_size"] == 200
    assert result.metrics["rollout/offline_rows_per_batch"] == 6
    assert result.metrics["rollout/online_rows_per_batch"] == 6
    assert torch.equal(logged.obs, before)


@pytest.mark.parametrize(
    ("algo", "chosen", "explored"),
    [
        ("awac", {}, [0, 1, 2, 3]),  # as in the methods' own code
        ("cql", {"initial_actions": "random"}, [3]),
        ("rlpd", {}, [3]),  # as in the paper
        ("rlpd", {"initial_actions": "policy"}, [0, 1, 2, 3]),
    ],
)
def test_the_first_steps_after_pretraining_are_the_policys_or_random(
    algo: str,
    chosen: dict[str, Any],
    explored: list[int],
    config: Any,
    logged: TransitionDataset,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is learned in the first three steps either way."""
    options = {"offline_pretrain_updates": 3, "learning_starts": 3, **chosen}
    run = new_run(config(algo, algo_kwargs=options), dataset=logged)
    steps: list[int] = []
    explore = run.algorithm.explore

    def noted(obs: Any, rng: Any, progress: float) -> Any:
        steps.append(run.experience.env_steps)  # type: ignore[attr-defined]
        return explore(obs, rng, progress)

    monkeypatch.setattr(run.algorithm, "explore", noted)
    ticks = [next(run.experience) for _ in range(8)]
    run.experience.close()
    assert [step for step in steps if step <= 3] == explored
    learned = [isinstance(tick, Batch) for tick in ticks]
    pretrained = 1 if algo == "rlpd" else 3  # RLPD's three updates are one batch
    assert learned[: pretrained + 5] == [True] * pretrained + [False] * 4 + [True]


class Steps(Callback):
    def __init__(self) -> None:
        self.seen: list[tuple[str, int, int]] = []

    def on_update_end(self, state: TrainerState, terms: Any) -> None:
        self.seen.append((state.phase, state.global_step, state.update_count))

    def on_eval_end(self, state: TrainerState, metrics: Any) -> None:
        self.seen.append(("eval", state.global_step, state.update_count))


def test_steps_count_updates_first_and_then_environment_steps(
    config: Any, logged: TransitionDataset
) -> None:
    """The joint rounds of pretraining end with the updates that are left; then comes a score."""
    steps = Steps()
    settings = config(
        total_timesteps=20, algo_kwargs={"offline_pretrain_updates": 7, "learning_starts": 18}
    )
    result = train(settings, dataset=logged, callbacks=[steps])
    assert steps.seen == [
        ("offline", 3, 3),
        ("offline", 6, 6),
        ("eval", 7, 7),
        ("online", 7, 7),
        ("eval", 25, 7),
        ("online", 26, 10),
        ("online", 27, 13),
        ("eval", 27, 13),
    ]
    assert result.stop_reason == "total_timesteps"


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "pretraining": ("rlpd", {"offline_pretrain_updates": 40}),
    "rlpd": ("rlpd", {}),
    "normalised": ("td3_bc", {"offline_pretrain_updates": 15, "normalize_observations": True}),
    "pooled": ("awac", {"offline_pretrain_updates": 15}),
    "decayed weight": ("rebrac", {"offline_pretrain_updates": 15}),
    "conservative": ("cql", {"offline_pretrain_updates": 15, "num_cql_samples": 2}),
    "calibrated": (
        "cql",
        {"offline_pretrain_updates": 15, "num_cql_samples": 2, "cal_ql": True},
    ),
    "expectile": ("iql", {"offline_pretrain_updates": 15, "offline_batch_ratio": {"start": 0.9}}),
    "filtered": ("crr", {"offline_pretrain_updates": 15, "rollback_on_drop": 50.0}),
}


@pytest.mark.parametrize("case", CASES)
def test_killed_in_either_phase_and_resumed_is_the_uninterrupted_run(
    case: str, config: Any, logged: TransitionDataset
) -> None:
    algo, options = CASES[case]
    settings = config(algo, algo_kwargs=options)
    whole = train(settings, dataset=logged)
    existing = set(Path(settings.output_dir).glob("*"))
    with pytest.raises(Killed):
        train(settings, dataset=logged, callbacks=[KillAtTick(12 if case == "pretraining" else 67)])
    (run_dir,) = set(Path(settings.output_dir).glob("*")) - existing
    resume(run_dir, dataset=logged)
    assert_same_run(whole.run_dir, run_dir)


@pytest.mark.parametrize("algo", ["td3_bc", "iql", "awac", "crr", "cql", "rebrac"])
def test_what_was_learned_offline_goes_on_online(
    algo: str, pendulum_config: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    offline = train(pendulum_config(algo))
    before = tensors_of(offline.run_dir / "checkpoints/last")
    command = ["resume", str(offline.run_dir), "--online", "--total-timesteps", "25", "--quiet"]
    assert main(command) == 0
    printed = capsys.readouterr().out
    run_dir = Path(printed.split("run ")[1].split()[0])
    assert run_dir != offline.run_dir
    after = tensors_of(run_dir / "checkpoints/last")
    first = tensors_of(run_dir / "checkpoints/step_40")  # the offline policy, scored at once
    for name, value in before.items():
        if name.startswith("networks."):
            assert torch.equal(first[name], value)
    assert any(not torch.equal(after[name], first[name]) for name in first if "actor" in name)
    assert [len(value) for key, value in after.items() if key.endswith("/rows")] == [25]
    assert "rollout/buffer_size 25" in " ".join(printed.split())
    again = resume(run_dir, total_timesteps=30)
    assert again.run_dir == run_dir
    assert again.metrics["rollout/buffer_size"] == 30


def test_a_managed_class_goes_on_online(pendulum_config: Any) -> None:
    managed = api.algorithm("td3_bc")(pendulum_config())
    with pytest.raises(Exception, match="before learn"):
        managed.learn(online=True, total_timesteps=10)
    managed.learn()
    result = managed.learn(online=True, total_timesteps=10)
    assert result.metrics["rollout/buffer_size"] == 10
    assert managed.config.regime == "offline_to_online"


@pytest.mark.parametrize(
    ("limit", "pretraining", "end"), [(7, 0, 9), (9, 0, 9), (7, 8, 8), (10, 8, 11)]
)
def test_a_round_of_updates_is_not_cut_and_the_end_is_said_at_the_start(
    limit: int,
    pretraining: int,
    end: int,
    config: Any,
    logged: TransitionDataset,
    caplog: pytest.LogCaptureFixture,
) -> None:
    options = {"max_updates": limit, "offline_pretrain_updates": pretraining}
    with caplog.at_level("INFO", "rl_training"):
        run = new_run(config(eval_episodes=0, algo_kwargs=options), dataset=logged)
    assert ("which are not cut" in caplog.text) == (end > limit)
    assert (f"the run ends after {end}" in caplog.text) == (end > limit)
    result = run.execute()
    assert (result.stop_reason, run.state.update_count) == ("max_updates", end)


def test_only_offline_runs_can_go_on_online(
    pendulum_config: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    cloned = train(pendulum_config("bc")).run_dir
    assert main(["resume", str(cloned), "--online", "--total-timesteps", "5"]) == 2
    assert "what can go on online is offline training of awac" in capsys.readouterr().err
    run_dir = train(pendulum_config()).run_dir
    assert main(["resume", str(run_dir), "--online"]) == 2
    assert "needs --total-timesteps" in capsys.readouterr().err
    assert main(["resume", str(run_dir), "--env", "CartPole-v1"]) == 2
    assert "--online" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        ("MountainCarContinuous-v0", "its observations have 2 numbers, those of the policy 3"),
        ("CartPole-v1", "it takes one of 2 discrete actions, but the policy gives continuous"),
        (
            f"{__name__}:NarrowPendulum",
            "it bounds action 0 by -0.5 and 0.5, the policy by -2 and 2",
        ),
    ],
)
def test_an_environment_that_does_not_fit_is_refused_before_anything_is_written(
    env_id: str, message: str, pendulum_config: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = train(pendulum_config(eval_episodes=0)).run_dir
    written = sorted(run_dir.parent.rglob("*"))
    command = ["resume", str(run_dir), "--online", "--env", env_id, "--total-timesteps", "9"]
    assert main(command) == 2
    error = capsys.readouterr().err
    assert f"{env_id} does not fit the policy" in error
    assert message in error
    assert sorted(run_dir.parent.rglob("*")) == written


class NarrowPendulum(PendulumEnv):
    def __init__(self) -> None:
        super().__init__()
        self.action_space = gym.spaces.Box(-0.5, 0.5, (1,), np.float32)


@pytest.fixture
def pendulum_log(tmp_path: Path) -> dict[str, str]:
    path = tmp_path / "log.npz"
    words = ["--env", "Pendulum-v1", "--steps", "250", "-o", str(path)]
    assert main(["data", "collect", *words]) == 0
    return {"dataset_kind": "npz", "dataset_path": str(path)}


def test_advice_for_a_run_without_an_environment_works(
    pendulum_log: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A log with bounds and no environment; then what the messages say, word for word."""
    options = {**pendulum_log, "action_low": -2.0, "action_high": 2.0, "hidden_sizes": [8]}
    path = tmp_path / "own.yaml"
    values = {"algo": "td3_bc", "total_timesteps": 9, "output_dir": str(tmp_path / "runs")}
    path.write_text(json.dumps({**values, "algo_kwargs": options}))  # JSON is YAML
    assert main(["train", str(path)]) == 0
    printed = capsys.readouterr()
    run = printed.out.split("run ")[1].split()[0]
    advice = re.search(r"`rl-training (eval RUN --env ID)`", printed.err)
    assert advice is not None
    words = advice[1].replace("RUN", run).replace("ID", "Pendulum-v1").split()
    assert main([*words, "--episodes", "1"]) == 0
    online = ["resume", run, "--online", "--total-timesteps", "20", "--quiet"]
    assert main(online) == 2
    assert "name one: --env ID" in capsys.readouterr().err
    assert main([*online, "--env", "Pendulum-v1"]) == 0
    again = capsys.readouterr().out.split("run ")[1].split()[0]
    assert main(["resume", again, "--total-timesteps", "25", "--quiet"]) == 0


@pytest.mark.parametrize("use", [None, "training"])
def test_of_the_options_of_another_environment_reward_wrappers_alone_are_taken_over(
    use: str | None, pendulum_log: dict[str, str], tmp_path: Path
) -> None:
    """The critic has learned their scale, so the log keeps it, too."""
    shaping = {"wrappers": {"reward": {"scale": 0.1}}}
    own, shared = ({"g": 9.0, **shaping}, shaping)
    if use is not None:
        own, shared = {use: own, "evaluation": {"g": 8.0}}, {use: shared}
    offline = train(
        TrainConfig(
            algo="td3_bc",
            env_id="Pendulum-v1",
            env_kwargs=own,
            total_timesteps=3,
            eval_episodes=0,
            output_dir=str(tmp_path / "runs"),
            algo_kwargs={**pendulum_log, "hidden_sizes": [8]},
        )
    )
    run = open_online(offline.run_dir, 9, env_id=f"{__name__}:WidePendulum")
    run.experience.close()
    assert run.config.env_kwargs == shared
    same = open_online(offline.run_dir, 9, env_id="Pendulum-v1")
    same.experience.close()
    assert same.config.env_kwargs == own
    logged: list[Any] = [each.experience for each in (run, same)]
    assert torch.equal(*(experience.dataset.rewards for experience in logged))


class WidePendulum(PendulumEnv):
    def __init__(self) -> None:
        super().__init__()
        self.action_space = gym.spaces.Box(-3, 3, (1,), np.float32)


def test_a_score_that_falls_returns_to_the_last_good_policy(
    config: Any, logged: TransitionDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = iter([100.0, 90.0, 60.0])  # the second is within 30 %, the third is not

    def scripted(self: Evaluator, seeds: Any, **_: Any) -> Evaluation:
        return Evaluation(np.array([next(scores)]), np.array([1]))

    monkeypatch.setattr(Evaluator, "run", scripted)
    options = {"offline_pretrain_updates": 9, "rollback_on_drop": 0.3, "eval_interval": 20}
    options |= {"keep_checkpoints": 2}
    settings = config(algo_kwargs=options, checkpoint_interval=5, total_timesteps=100)
    result = train(settings, dataset=logged)
    assert result.stop_reason is not None
    assert "the score fell to 60, below 70" in result.stop_reason
    assert "the policy is that of step 20" in result.stop_reason
    last, good = (tensors_of(result.run_dir / "checkpoints" / name) for name in ("last", "step_20"))
    networks = [name for name in good if name.startswith("networks.")]
    assert all(torch.equal(last[name], good[name]) for name in networks)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"offline_batch_ratio": 1.5}, "offline_batch_ratio: must be >= 0 and <= 1"),
        ({"offline_batch_ratio": {"begin": 1}}, "offline_batch_ratio.begin: unknown key"),
        ({"offline_pretrain_updates": -1}, "offline_pretrain_updates: must be >= 0"),
        ({"rollback_on_drop": 0}, "rollback_on_drop: must be > 0"),
        ({"rollback_on_drop": 0.3}, "needs an offline policy to compare with"),
        ({"n_step": 3}, "learned from step by step"),
        ({"subset_size": 4}, "subset_size must be <= num_critics"),
    ],
)
def test_wrong_settings_are_named(changes: dict[str, Any], message: str, config: Any) -> None:
    with pytest.raises(ConfigError, match=message):
        config(algo_kwargs=changes)


def test_options_of_collecting_are_refused_offline(pendulum_config: Any) -> None:
    for key, value in (("learning_starts", 3), ("offline_batch_ratio", 0.5)):
        with pytest.raises(ConfigError, match="set regime: offline_to_online"):
            pendulum_config("awac", algo_kwargs={key: value})
    with pytest.raises(ConfigError, match="is for going on online from logged data, but sac"):
        TrainConfig(algo="sac", env_id="Pendulum-v1", algo_kwargs={"offline_batch_ratio": 0.5})


def test_calibration_knows_returns_of_both_sources(config: Any, logged: TransitionDataset) -> None:
    """Collected rows have none until their episode has ended; the environment never discounts."""
    options = {"cal_ql": True, "gamma": 1.0, "batch_size": 64, "buffer_capacity": 64}
    options |= {"normalize_observations": False, "reward_scale": 0.5}
    seen: dict[tuple[int, int], set[float]] = {}
    for batch in batches_of(config("cql", algo_kwargs=options), logged, 60):
        assert batch.returns is not None
        tagged = batch.obs[:, 0] == TAG
        steps_left = 5 - batch.obs[tagged, 1]
        worse = 0.5 * steps_left
        assert ((batch.returns[tagged] - 5 * steps_left).abs() <= worse).all()
        for (identity, time), found in zip(
            batch.obs[~tagged].tolist(), batch.returns[~tagged].tolist(), strict=True
        ):
            seen.setdefault((int(identity), int(time)), set()).add(found)
    known = {place: max(values) for place, values in seen.items() if max(values) > -np.inf}
    assert known
    assert any(-np.inf in values for values in seen.values())
    for (identity, time), found in known.items():
        left = range(time, length_of(identity))
        expected = 0.5 * sum(reward_of(identity, step, 0.0) for step in left)
        assert found == pytest.approx(expected, abs=0.02 * len(left))


def test_rollback_needs_scores(config: Any) -> None:
    options = {"offline_pretrain_updates": 5, "rollback_on_drop": 0.3}
    with pytest.raises(ConfigError, match="needs evaluations, but eval_episodes is 0"):
        config(eval_episodes=0, algo_kwargs=options)


def test_an_episode_that_starts_anew_on_resume_is_not_counted_with_the_old_one(
    config: Any, logged: TransitionDataset, caplog: pytest.LogCaptureFixture
) -> None:
    """Returns of a restless environment: rewards of at least 9 a step, over at most six steps."""
    options = {"cal_ql": True, "num_cql_samples": 2, "gamma": 1.0, "buffer_capacity": 400}
    settings = config("cql", env_id="tests.support.envs:RestlessEnv", algo_kwargs=options)
    with pytest.raises(Killed):
        train(settings, dataset=logged, callbacks=[KillAtTick(67)])
    (run_dir,) = Path(settings.output_dir).glob("*")
    run = open_run(run_dir, dataset=logged)
    assert isinstance(run, Run)
    run.execute()
    assert "does not come out the same" in caplog.text
    sampler = run.experience.sampler  # type: ignore[attr-defined]
    returns, rows = sampler._returns.returns, sampler.buffer._rows[: len(sampler.buffer)]
    lengths = 3 + rows[:, 0].long() % 4
    left = lengths - rows[:, 1]
    known = returns[: len(rows)] > -torch.inf
    assert known.any()
    # the reward is the identity and little more in every step of an episode
    expected = rows[known, 0] * left[known]
    torch.testing.assert_close(returns[: len(rows)][known], expected, atol=10.0, rtol=1e-3)
