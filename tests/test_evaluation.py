"""Scores are of the raw reward, in an environment of their own, the same for the same policy."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rl_training.config import RunError
from rl_training.runtime import train
from rl_training.runtime.assemble import build_algorithm, load_policy, open_checkpoint
from rl_training.runtime.config.train_config import TrainConfig
from rl_training.runtime.evaluation import evaluator as evaluation
from rl_training.runtime.evaluation.evaluator import Evaluator
from rl_training.runtime.policy import Policy
from rl_training.spec import ProblemSpec


class Scripted(gym.Env[Any, Any]):
    """Reward 2 for 5 steps; ends by termination or never; may report success."""

    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Box(-3, 3, (1,))

    def __init__(self, length: int = 5, success: bool | None = None, reward: float = 2.0) -> None:
        self.length, self.success, self.reward = length, success, reward

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self.observation_space.low.copy(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        self.steps += 1
        info = {} if self.success is None else {"is_success": self.success and self.steps == 3}
        return (
            self.observation_space.high.copy(),
            self.reward,
            self.steps == self.length,
            False,
            info,
        )


@pytest.fixture(autouse=True)
def _registered() -> Any:
    gym.register("TestScripted-v0", Scripted)
    yield
    gym.registry.pop("TestScripted-v0")


@pytest.fixture
def policy() -> Policy:
    spec = ProblemSpec(2, "continuous", 1, (-3.0,), (3.0,))
    return Policy(build_algorithm(TrainConfig(algo="bc"), spec))


def test_returns_are_raw_and_shaped_returns_are_extra(policy: Policy) -> None:
    shaping = {"wrappers": {"reward": {"scale": 0.5, "shift": -0.5, "clip_max": 0.25}}}
    metrics = Evaluator(policy, "TestScripted-v0", shaping).run([0, 1]).metrics()
    assert metrics == {
        "eval/return_mean": 10.0, "eval/return_std": 0.0, "eval/length_mean": 5.0,
        "eval/shaped_return_mean": 1.25,
    }  # fmt: skip
    assert (
        "eval/shaped_return_mean" not in Evaluator(policy, "TestScripted-v0", {}).run([0]).metrics()
    )


@pytest.mark.parametrize(("success", "rate"), [(True, 1.0), (False, 0.0)])
def test_success_rate_is_reported_where_the_environment_says(
    success: bool, rate: float, policy: Policy
) -> None:
    metrics = Evaluator(policy, "TestScripted-v0", {"success": success}).run([0, 1]).metrics()
    assert metrics["eval/success_rate"] == rate


def test_evaluation_has_its_own_overrides(policy: Policy) -> None:
    kwargs = {"length": 5, "evaluation": {"length": 3}}
    assert Evaluator(policy, "TestScripted-v0", kwargs).run([0]).lengths.tolist() == [3]


def test_an_episode_that_never_ends_is_an_error(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "MAX_EPISODE_STEPS", 50)
    with pytest.raises(RunError, match="max_episode_steps"):
        Evaluator(policy, "TestScripted-v0", {"length": -1}).run([0])


def test_a_return_that_is_not_finite_is_an_error(policy: Policy) -> None:
    with pytest.raises(RunError, match=r"TestScripted-v0: the return .* is nan"):
        Evaluator(policy, "TestScripted-v0", {"reward": float("nan")}).run([7])


def test_stochastic_scores_depend_on_the_seeds_alone(pendulum_config: Any) -> None:
    """Not on what was drawn before: a resumed run evaluates as an uninterrupted one."""
    config = pendulum_config("bc", algo_kwargs={"policy_type": "gaussian"})
    policy = load_policy(*open_checkpoint(train(config).run_dir))
    evaluator = Evaluator(policy, "Pendulum-v1", {"max_episode_steps": 20})
    first = evaluator.run([3, 4], deterministic=False).returns
    assert np.array_equal(evaluator.run([3, 4], deterministic=False).returns, first)
    assert not np.array_equal(evaluator.run([3, 4]).returns, first)


def test_every_evaluation_starts_from_the_same_states(pendulum_config: Any) -> None:
    result = train(pendulum_config(algo_kwargs={"learning_rate": 1e-12, "eval_interval": 10}))
    with np.load(result.run_dir / "evaluations.npz") as saved:
        assert saved["steps"].tolist() == [10, 20, 30, 40]
        np.testing.assert_allclose(saved["returns"], saved["returns"][:1].repeat(4, 0), rtol=1e-5)
