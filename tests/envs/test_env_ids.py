import sys

import gymnasium as gym
import pytest

from rl_training.config import EnvError, MissingExtraError
from rl_training.envs import lookup, make_env

MODULE = """
import gymnasium as gym
import numpy as np


class Line(gym.Env):
    observation_space = gym.spaces.Box(-9, 9, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, gain: float = 1.0, render_mode=None):
        if gain < 0:
            raise RuntimeError("gain is negative\\nsecond line")
        self.gain = gain

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.ones(2, np.float32), self.gain, False, False, {}


def wrapped(**kwargs):
    return gym.wrappers.TimeLimit(Line(**kwargs), 4)


class NotAnEnv:
    pass


constant = 3
gym.register("Line-v0", entry_point="line_envs:Line", max_episode_steps=5)
gym.register("Wrapped-v0", entry_point=wrapped)
"""


@pytest.fixture
def line_envs(tmp_path, monkeypatch):
    (tmp_path / "line_envs.py").write_text(MODULE)
    (tmp_path / "broken_envs.py").write_text("1 / 0")
    (tmp_path / "hungry_envs.py").write_text("import no_such_package")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    gym.registry.pop("Line-v0", None)
    gym.registry.pop("Wrapped-v0", None)
    sys.modules.pop("line_envs", None)


def episode_length(env) -> int:
    env.reset(seed=0)
    for step in range(1, 50):
        if any(env.step(env.action_space.sample())[2:4]):
            return step
    return -1


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        ("Pendulm-v1", "there is no environment 'Pendulm-v1'; did you mean 'Pendulum-v1'?"),
        ("pendulum-v1", "there is no environment 'pendulum-v1'; did you mean 'Pendulum-v1'?"),
        ("HalfChetah-v4", "there is no environment 'HalfChetah-v4'; did you mean 'HalfCheetah-v4'?"),
        ("CartPol-v7", "there is no environment 'CartPol-v7'; did you mean 'CartPole-v1'?"),
        ("CartPole-v7", "there is no environment 'CartPole-v7'; versions that exist: CartPole-v0, CartPole-v1"),
        ("Zorg-v0", "there is no environment 'Zorg-v0'; import the package that registers it with 'module:EnvName'"),
        ("no_such:Env", "no_such:Env: there is no module 'no_such'; install it, or put its directory on PYTHONPATH"),
        ("", "env_id must be text such as 'Pendulum-v1', got ''"),
    ],
)  # fmt: skip
def test_unknown_id_gets_one_helpful_line(env_id, message):
    with pytest.raises(EnvError) as caught:
        make_env(env_id)
    assert str(caught.value) == message
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_unversioned_id_means_the_latest_version():
    with pytest.warns(UserWarning, match="latest versioned"):
        assert make_env("CartPole").spec.id == "CartPole-v1"


@pytest.mark.parametrize(
    ("package", "extra", "said"),
    [
        ("MuJoCo", "mujoco", 'MuJoCo is not installed, run `pip install "gymnasium[mujoco]"`'),
        ("Box2D", "box2d", 'pygame is not installed, run `pip install "gymnasium[box2d]"`'),
    ],
)
def test_missing_dependency_names_the_extra(monkeypatch, package, extra, said):
    def fail(*_args, **_kwargs):
        raise gym.error.DependencyNotInstalled(said)

    monkeypatch.setattr(lookup.gym, "make", fail)
    with pytest.raises(MissingExtraError) as caught:
        make_env("HalfCheetah-v5")
    assert str(caught.value) == (
        f"HalfCheetah-v5 needs {package}: pip install 'rl-training[{extra}]'"
    )


def test_other_missing_dependency_keeps_gymnasiums_words(monkeypatch):
    def fail(*_args, **_kwargs):
        raise gym.error.DependencyNotInstalled("jax is not installed\nmore")

    monkeypatch.setattr(lookup.gym, "make", fail)
    with pytest.raises(EnvError, match=r"package that is not installed: jax is not installed$"):
        make_env("CartPole-v1")


def test_robotics_id_without_the_package_names_the_extra(monkeypatch):
    known = {key: spec for key, spec in gym.registry.items() if not key.startswith("Fetch")}
    monkeypatch.setattr(lookup.gym, "registry", {"CartPole-v1": known["CartPole-v1"]})
    with pytest.raises(MissingExtraError, match=r"rl-training\[robotics\]"):
        make_env("FetchReach-v4")


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("gravity", r"takes no argument 'gravity' \(it takes: render_mode, g\)"),
        ("wrapers", "did you mean 'wrappers'"),
        ("max_episode_step", "did you mean 'max_episode_steps'"),
    ],
)
def test_unknown_make_argument_is_named(key, hint):
    with pytest.raises(EnvError, match=rf"env_kwargs\.{key}: Pendulum-v1 .*{hint}") as caught:
        make_env("Pendulum-v1", {key: 1})
    assert caught.value.__suppress_context__


def test_module_path_makes_a_class_with_a_time_limit(line_envs):
    env = make_env("line_envs:Line", {"gain": 2.0, "max_episode_steps": 3})
    assert env.unwrapped.gain == 2.0
    assert episode_length(env) == 3
    assert episode_length(make_env("line_envs:Line")) == -1


def test_module_path_makes_an_id_that_the_module_registers(line_envs):
    assert episode_length(make_env("line_envs:Line-v0")) == 5


def test_module_path_makes_a_factory_that_the_module_registers(line_envs):
    env = make_env("line_envs:Wrapped-v0", {"gain": 2.0, "wrappers": {"reward": {"scale": 3.0}}})
    assert episode_length(env) == 4
    assert env.step(0)[1] == 6.0


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        ("line_envs:Lnie", r"module 'line_envs' has and registers no environment 'Lnie'; did you mean 'Line'\?"),
        ("line_envs:Xyz", r"module 'line_envs' has and registers no environment 'Xyz' \(it has: Line\)"),
        ("line_envs:constant", "no environment 'constant'"),
        ("line_envs:NotAnEnv", "line_envs:NotAnEnv is not an environment: NotAnEnv does not inherit from gymnasium.Env"),
        ("line_envs:wrapped", "line_envs:wrapped: wrapped is a function; env_id takes a registered id or an Env class"),
        ("line_envs:Line-v3", "no environment 'Line-v3'"),
        ("broken_envs:Line", "importing 'broken_envs' failed: ZeroDivisionError: division by zero"),
        ("hungry_envs:Line", "module 'hungry_envs' needs 'no_such_package', which is not installed"),
    ],
)  # fmt: skip
def test_module_path_errors_are_one_line(line_envs, env_id, message):
    with pytest.raises(EnvError, match=message) as caught:
        make_env(env_id)
    assert "\n" not in str(caught.value)


def test_failing_constructor_is_reported_in_one_line(line_envs):
    with pytest.raises(EnvError, match=r"^line_envs:Line cannot be created: .*gain is negative$"):
        make_env("line_envs:Line", {"gain": -1.0})
