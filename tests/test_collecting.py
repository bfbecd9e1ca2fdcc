"""What collecting stores is what happened: checked on environments that tell it in every row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from torch.distributions import (
    AffineTransform,
    Independent,
    Normal,
    TanhTransform,
    TransformedDistribution,
)

from rl_training.data import HERReplayBuffer, ReplayBuffer
from rl_training.envs import infer_env_spaces, make_vector_env
from rl_training.runtime import Callback, TrainConfig, TrainerState, train
from rl_training.runtime.assemble import load_policy, new_run, open_checkpoint
from rl_training.runtime.collect import collect_dataset
from rl_training.runtime.experience.collector import CollectError, Collector
from rl_training.runtime.experience.protocols import Collected
from rl_training.runtime.experience.single_env_collector import SingleCollector, collector_for
from tests.support.envs import ScriptedEnv, length_of, reward_of

SCRIPTED = "tests.support.envs:ScriptedEnv"


def collector_of(num_envs: int, mode: AutoresetMode, asynchronous: bool = False) -> Collector:
    envs = make_vector_env(
        SCRIPTED, num_envs, asynchronous=asynchronous, autoreset_mode=mode, episode_seed=5
    )
    spec = infer_env_spaces(SCRIPTED)
    buffer = ReplayBuffer(10_000, spec.obs_dim, spec.action_width, num_envs=num_envs)
    return Collector(envs, spec, buffer, SCRIPTED)


def collect(collector: Collector, vector_steps: int) -> int:
    rng = np.random.default_rng(0)

    def act(obs: Any) -> Any:
        return rng.uniform(-1, 1, (len(obs), 1)).astype(np.float32)

    return sum(collector.step(act) for _ in range(vector_steps))


def check_rows(buffer: ReplayBuffer, count: int) -> None:
    """Every row by itself, and every environment's rows one after the other."""
    assert len(buffer) == count
    layout = buffer.layout
    rows = buffer._rows[:count].numpy()
    identity, time = rows[:, 0].astype(int), rows[:, 1].astype(int)
    lengths = 3 + identity % 4
    assert (time < lengths).all(), "a row that starts at an episode's end: a reset was stored"
    assert (rows[:, layout.next_obs] == np.stack([identity, time + 1], 1)).all()
    expected = [reward_of(i, t, 2 * a) for i, t, a in zip(identity, time, rows[:, 2], strict=True)]
    np.testing.assert_allclose(rows[:, layout.reward], expected, rtol=1e-6)
    ended = time + 1 == lengths
    assert (rows[:, layout.termination] == (ended & (identity % 2 == 1))).all()
    assert (rows[:, layout.truncation] == (ended & (identity % 2 == 0))).all()
    for env in range(buffer._latest.size):
        own = np.flatnonzero(buffer._env_ids[:count].numpy() == env)
        follows = ~ended[own[:-1]]
        assert (identity[own[1:]][follows] == identity[own[:-1]][follows]).all()
        assert (time[own[1:]] == np.where(follows, time[own[:-1]] + 1, 0)).all()
        following = buffer._following[:count].numpy()[own]
        assert (following[:-1] == np.where(follows, own[1:], -1)).all()
        assert following[-1] == -1


@pytest.mark.parametrize("num_envs", [1, 3, 8])
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_only_real_transitions_are_stored(mode: AutoresetMode, num_envs: int) -> None:
    collector = collector_of(num_envs, mode)
    count = collect(collector, 60)
    check_rows(collector.buffer, count)
    if mode is AutoresetMode.NEXT_STEP:
        assert count < 60 * num_envs  # steps that only reset are no steps
    else:
        assert count == 60 * num_envs


def test_processes_store_the_same_as_one() -> None:
    mode = AutoresetMode.SAME_STEP
    together, apart = collector_of(3, mode), collector_of(3, mode, asynchronous=True)
    try:
        for collector in (together, apart):
            check_rows(collector.buffer, collect(collector, 40))
        assert (together.buffer._rows[:120] == apart.buffer._rows[:120]).all()
    finally:
        apart.close()


def single_and_vector(env_id: str) -> list[Collector]:
    spec = infer_env_spaces(env_id)
    goals = spec.goal_dim > 0
    pair: list[Collector] = []
    for kind in (collector_for, Collector):
        envs = make_vector_env(
            env_id, 1, autoreset_mode=AutoresetMode.SAME_STEP, episode_seed=5, goals=goals
        )
        sizes = (50, spec.obs_dim, spec.action_width)  # smaller than what is collected
        buffer = (
            HERReplayBuffer(*sizes, goal_dim=spec.goal_dim, her_ratio=0.0)
            if goals
            else ReplayBuffer(*sizes)
        )
        pair.append(kind(envs, spec, buffer, env_id))
    return pair


@pytest.mark.parametrize("env_id", [SCRIPTED, "CartPole-v1", "RL-PointGoal-v0"])
def test_one_environment_by_itself_stores_the_same_as_a_vector_of_one(env_id: str) -> None:
    single, vector = single_and_vector(env_id)
    assert isinstance(single, SingleCollector)
    assert not isinstance(vector, SingleCollector)
    spec = infer_env_spaces(env_id)
    for collector in (single, vector):
        rng = np.random.default_rng(0)
        for _ in range(120):
            collector.step(
                lambda obs, rng=rng: (
                    rng.integers(spec.action_dim, size=1)
                    if spec.action_kind == "discrete"
                    else rng.uniform(-1.1, 1.1, (1, spec.action_dim)).astype(np.float32)
                )
            )
    (held, values), (expected, expected_values) = single.state(), vector.state()
    assert values == expected_values
    held |= single.buffer.state_dict()
    for name, value in (expected | vector.buffer.state_dict()).items():
        assert held[name].equal(value), name


class _Resized(ScriptedEnv):
    """Shows one number where its space says two."""

    def step(self, action: Any) -> Any:
        obs, *rest = super().step(action)
        return obs[:1], *rest


@pytest.mark.filterwarnings("ignore::UserWarning")  # gymnasium notices, too, and goes on
@pytest.mark.parametrize("num_envs", [1, 2])
def test_an_observation_of_another_shape_than_its_space_is_an_error(num_envs: int) -> None:
    envs = make_vector_env(
        f"{__name__}:_Resized",
        num_envs,
        autoreset_mode=AutoresetMode.SAME_STEP,
        episode_seed=0,
    )
    buffer = ReplayBuffer(10, 2, 1, num_envs=num_envs)
    collector = collector_for(envs, infer_env_spaces(SCRIPTED), buffer, "Resized")
    with pytest.raises(
        CollectError,
        match=r"Resized failed: step.*shape \(1,\), but observation_space has shape \(2,\)",
    ):
        collect(collector, 1)
    assert len(buffer) == 0


def test_returns_and_lengths_of_ended_episodes() -> None:
    collector = collector_of(1, AutoresetMode.SAME_STEP)
    collect(collector, 50)
    layout, rows = collector.buffer.layout, collector.buffer._rows[:50]
    ends = (rows[:, layout.termination] + rows[:, layout.truncation]).nonzero().flatten().tolist()
    starts = [0, *(end + 1 for end in ends[:-1])]
    totals = [
        float(rows[a : b + 1, layout.reward].sum()) for a, b in zip(starts, ends, strict=True)
    ]
    report = collector.episodes.report()
    assert report["rollout/return_mean"] == pytest.approx(np.mean(totals), rel=1e-5)
    assert report["rollout/length_mean"] == np.mean([length_of(int(rows[a, 0])) for a in starts])
    assert report["rollout/episodes"] == len(ends)
    assert collector.episodes.report() == {}


class Ticks(Callback):
    """In what order things happen."""

    def __init__(self) -> None:
        self.updates_at: dict[int, int] = {}

    def on_update_end(self, state: TrainerState, terms: Any) -> None:
        self.updates_at[state.global_step] = self.updates_at.get(state.global_step, 0) + 1


def sac_config(tmp_path: Any, **changes: Any) -> TrainConfig:
    kwargs = {
        "hidden_sizes": [8, 8],
        "batch_size": 8,
        "learning_starts": 10,
        **changes.pop("algo_kwargs", {}),
    }
    values = {
        "algo": "sac",
        "env_id": SCRIPTED,
        "total_timesteps": 60,
        "eval_episodes": 0,
        "output_dir": str(tmp_path),
        **changes,
    }
    return TrainConfig(**values, algo_kwargs=kwargs)


@pytest.mark.parametrize("num_envs", [1, 2, 3, 5, 8])
@pytest.mark.parametrize(("every", "updates"), [(1, 1), (4, 1), (3, 2), (1, 3)])
def test_updates_per_step_do_not_depend_on_the_number_of_environments(
    num_envs: int, every: int, updates: int, tmp_path: Any
) -> None:
    ticks = Ticks()
    options = {"train_frequency": every, "gradient_updates_per_step": updates}
    train(
        sac_config(tmp_path, num_envs=num_envs, algo_kwargs=options, total_timesteps=58),
        callbacks=[ticks],
    )
    steps = -(-58 // num_envs) * num_envs  # whole vector steps
    assert sum(ticks.updates_at.values()) == (steps - 10) // every * updates
    done = 0
    for step, count in ticks.updates_at.items():
        done += count
        assert done == (step - 10) // every * updates


def test_warm_up_is_uniform_and_counts_single_steps(tmp_path: Any) -> None:
    """Of the vector step that crosses `learning_starts`, only the first part is random."""
    config = sac_config(tmp_path, num_envs=4, algo_kwargs={"learning_starts": 10})
    run = new_run(config)
    asked: list[int] = []
    original = run.algorithm.explore
    run.algorithm.explore = lambda obs, *rest: (  # type: ignore[method-assign]
        asked.append(len(obs)),
        original(obs, *rest),
    )[1]
    for _ in range(4):
        tick = next(run.experience)
        assert isinstance(tick, Collected)
        run.experience.updates_due = 0
    assert asked == [2, 4]  # rows 11 and 12, then all of the fourth step
    run.experience.close()


def test_the_replay_holds_actions_in_the_learners_units(tmp_path: Any) -> None:
    run = new_run(sac_config(tmp_path))
    for _ in range(40):
        next(run.experience)
        run.experience.updates_due = 0
    buffer = run.experience.buffer  # type: ignore[attr-defined]
    check_rows(buffer, 40)
    log = buffer.as_dataset(lambda actions: 2 * actions)
    assert log.actions.abs().max() <= 2
    assert len(log) == 40
    assert log.boundaries == "given"
    expected = [
        reward_of(int(i), int(t), float(a))
        for (i, t), a in zip(log.obs, log.actions[:, 0], strict=True)
    ]
    np.testing.assert_allclose(log.rewards, expected, rtol=1e-6)
    run.experience.close()


def _pendulum_checkpoint(tmp_path: Any, algo: str) -> Any:
    config = TrainConfig(
        algo=algo, env_id="Pendulum-v1", total_timesteps=2, output_dir=str(tmp_path), eval_episodes=0,
        algo_kwargs={"dataset_kind": "random", "dataset_size": 50, "hidden_sizes": [8], "batch_size": 4},
    )  # fmt: skip
    return train(config).checkpoint_path


def test_random_policies_log_their_probabilities() -> None:
    for env_id, probability in (("CartPole-v1", 1 / 2), ("Pendulum-v1", 1 / 4)):
        log = collect_dataset(env_id=env_id, checkpoint=None, steps=20)
        np.testing.assert_allclose(log.behavior_log_probs, np.log(probability), rtol=1e-6)


def test_drawn_actions_are_logged_with_their_density_in_units_of_the_environment(
    tmp_path: Any,
) -> None:
    """Against PyTorch's distributions; Pendulum's torque is in [-2, 2]."""
    checkpoint = _pendulum_checkpoint(tmp_path, "cql")
    policy = load_policy(*open_checkpoint(checkpoint, policy_only=True))
    for stochastic in (True, False):
        noise = 0.0 if stochastic else 0.01
        log = collect_dataset(
            env_id=None, checkpoint=checkpoint, steps=30, deterministic=not stochastic, noise=noise
        )
        assert log.behavior_log_probs is not None
        if stochastic:
            assert policy.normalizer is not None
            mean, log_std = policy.algorithm.actor(policy.normalizer(log.obs))
            drawn = Independent(
                TransformedDistribution(
                    Normal(mean, log_std.exp()), [TanhTransform(), AffineTransform(0, 2)]
                ),
                1,
            )
        else:
            drawn = Independent(Normal(policy(log.obs), 0.02), 1)
        expected = drawn.log_prob(log.actions).detach().numpy()
        np.testing.assert_allclose(log.behavior_log_probs, expected, atol=1e-3)


def test_deterministic_and_clipped_actions_have_no_logged_density(tmp_path: Any) -> None:
    checkpoint = _pendulum_checkpoint(tmp_path, "td3_bc")
    for options in ({}, {"noise": 3.0}, {"deterministic": False}):
        log = collect_dataset(env_id=None, checkpoint=checkpoint, steps=30, **options)
        assert log.behavior_log_probs is None
