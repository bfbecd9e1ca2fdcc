import sys

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from rl_training.config import ConfigError, EnvError, MissingExtraError
from rl_training.envs import make_env, make_raw_env, make_vector_env, parse_env_kwargs
from rl_training.runtime import TrainConfig


def test_every_other_key_goes_to_gymnasium_make():
    env = make_env("Pendulum-v1", {"g": 3.0, "max_episode_steps": 7})
    assert env.unwrapped.g == 3.0
    assert env.spec.max_episode_steps == 7


def test_uses_override_make_arguments_and_reward_keys():
    kwargs = {
        "g": 3.0,
        "wrappers": {"reward": {"scale": 0.1, "shift": 1.0}},
        "training": {"g": 4.0},
        "evaluation": {"max_episode_steps": 7, "wrappers": {"reward": {"scale": 1.0}}},
    }
    config = parse_env_kwargs(kwargs)
    training, evaluation = config.for_use("training"), config.for_use("evaluation")
    assert dict(training.make_kwargs) == {"g": 4.0}
    assert dict(evaluation.make_kwargs) == {"g": 3.0, "max_episode_steps": 7}
    assert (training.reward.scale, training.reward.shift) == (0.1, 1.0)
    assert (evaluation.reward.scale, evaluation.reward.shift) == (1.0, 1.0)


def test_raw_env_has_no_reward_wrappers():
    kwargs = {"wrappers": {"reward": {"clip_min": 5.0}}}
    raw, shaped = make_raw_env("Pendulum-v1", kwargs), make_env("Pendulum-v1", kwargs)
    for env in (raw, shaped):
        env.reset(seed=0)
    assert raw.step(np.zeros(1, np.float32))[1] < 0
    assert shaped.step(np.zeros(1, np.float32))[1] == 5.0


def test_null_and_empty_env_kwargs_mean_nothing():
    for kwargs in (None, {}, {"wrappers": None, "training": None, "evaluation": {}}):
        assert parse_env_kwargs(kwargs).training.reward.is_identity


@pytest.mark.parametrize(
    ("kwargs", "path", "words"),
    [
        ({"wrappers": {"reward": {"scael": 1}}}, "env_kwargs.wrappers.reward.scael", "'scale'"),
        ({"wrappers": {"rewards": {}}}, "env_kwargs.wrappers.rewards", "did you mean 'reward'"),
        ({"wrappers": 3}, "env_kwargs.wrappers", "expected a mapping, got 3"),
        ({"wrappers": {"reward": []}}, "env_kwargs.wrappers.reward", "expected a mapping"),
        ({"training": "x"}, "env_kwargs.training", "expected a mapping"),
        ({"training": {"evaluation": {}}}, "env_kwargs.training.evaluation", "at the top"),
        ({"id": "CartPole-v1"}, "env_kwargs.id", "set env_id"),
        (
            {"evaluation": {"wrappers": {"reward": {"scael": 1}}}},
            "env_kwargs.evaluation.wrappers.reward.scael",
            "did you mean 'scale'",
        ),
        (
            {
                "wrappers": {"reward": {"clip_max": 1.0}},
                "training": {"wrappers": {"reward": {"clip_min": 2.0}}},
            },
            "env_kwargs.training.wrappers.reward.clip_min",
            "below clip_max",
        ),
    ],
)
def test_wrong_env_kwargs_are_reported_once_at_their_path(kwargs, path, words):
    with pytest.raises(ConfigError, match=words) as caught:
        parse_env_kwargs(kwargs)
    assert [".".join(problem.path) for problem in caught.value.problems] == [path]


def test_all_problems_come_in_one_message():
    with pytest.raises(ConfigError) as caught:
        parse_env_kwargs({"wrappers": {"reward": {"scael": 1}}, "training": {"id": 1}})
    assert len(caught.value.problems) == 2


@pytest.mark.parametrize("asynchronous", [False, True])
def test_vector_env_shapes_rewards_inside_and_seeds_apart(asynchronous):
    kwargs = {"wrappers": {"reward": {"clip_min": 5.0}}}
    envs = make_vector_env("Pendulum-v1", 2, kwargs, asynchronous=asynchronous)
    try:
        obs, _ = envs.reset(seed=0)
        assert obs.shape == (2, 3)
        assert not np.array_equal(obs[0], obs[1])
        assert envs.step(np.zeros((2, 1), np.float32))[1].tolist() == [5.0, 5.0]
    finally:
        envs.close()


@pytest.mark.parametrize("asynchronous", [False, True])
def test_same_step_mode_reports_the_real_final_observation(asynchronous):
    kwargs = {"max_episode_steps": 1}
    envs = make_vector_env(
        "Pendulum-v1", 2, kwargs, asynchronous=asynchronous, autoreset_mode=AutoresetMode.SAME_STEP
    )
    single = make_env("Pendulum-v1", kwargs)
    try:
        envs.reset(seed=0)
        obs, _, _, truncated, infos = envs.step(np.zeros((2, 1), np.float32))
        single.reset(seed=0)
        final = single.step(np.zeros(1, np.float32))[0]
        assert truncated.all()
        np.testing.assert_array_equal(infos["final_obs"][0], final)
        assert not np.array_equal(obs[0], final)
    finally:
        envs.close()


def test_default_mode_resets_on_the_step_after_the_end():
    envs = make_vector_env("Pendulum-v1", 1, {"max_episode_steps": 1})
    envs.reset(seed=0)
    assert envs.step(np.zeros((1, 1), np.float32))[3].all()
    _, reward, _, truncated, _ = envs.step(np.zeros((1, 1), np.float32))
    assert reward[0] == 0.0
    assert not truncated.any()


@pytest.mark.parametrize("asynchronous", [False, True])
def test_vector_env_errors_reach_the_caller(asynchronous):
    with pytest.raises(EnvError, match="did you mean 'Pendulum-v1'"):
        make_vector_env("Pendulm-v1", 2, asynchronous=asynchronous)


def test_environments_on_ray_without_ray_name_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError) as caught:
        make_vector_env("Pendulum-v1", 2, vector_env="ray")
    assert str(caught.value) == "vector_env: ray needs Ray: pip install 'rl-training[ray]'"


def test_vector_env_needs_at_least_one_copy():
    with pytest.raises(ConfigError, match="num_envs: must be >= 1, got 0"):
        make_vector_env("Pendulum-v1", 0)


def test_options_that_were_parsed_once_are_used_as_they_are():
    kwargs = {"g": 3.0, "wrappers": {"reward": {"scale": 2.0}}, "evaluation": {"g": 5.0}}
    config = TrainConfig(algo="sac", env_id="Pendulum-v1", env_kwargs=kwargs)
    options = config.groups.env
    assert options == parse_env_kwargs(kwargs)
    assert parse_env_kwargs(options) is options
    for use, gravity in (("training", 3.0), ("evaluation", 5.0)):
        env = make_env("Pendulum-v1", options, use=use)
        assert env.unwrapped.g == gravity
        assert "RewardScaleWrapper" in str(env)


def test_env_kwargs_that_are_no_mapping_are_one_problem():
    with pytest.raises(ConfigError) as caught:
        TrainConfig(algo="sac", env_id="Pendulum-v1", env_kwargs="g")
    assert [problem.path for problem in caught.value.problems] == [("env_kwargs",)]
