"""Online training through the public calls of both libraries: environment steps with one update each.

The environments count their own steps and read the clock at two of them, so that building networks,
opening files and compiling are left out on both sides.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym

from benchmarks.speed import peers_sb3
from benchmarks.speed.problem import Problem
from benchmarks.speed.timing import Measured, NotMeasuredError
from rl_training.runtime import TrainConfig, train

LEARNING_STARTS, BUFFER = 100, 100_000


@dataclass(frozen=True)
class Case:
    algo: str
    env_id: str
    hidden_sizes: tuple[int, int]
    batch_size: int
    steps: int  # that are timed
    options: dict[str, Any]  # ours only


CASES = {
    # theirs is not double
    "dqn_step": Case("dqn", "SpeedCartPole-v1", (64, 64), 64, 2_000, {"double": False}),
    "sac_step": Case("sac", "SpeedHalfCheetah-v5", (256, 256), 256, 500, {}),
}
UNTIMED = 2 * LEARNING_STARTS  # steps before the clock is read


class StepClock:
    """CPU time between two steps of an environment."""

    def reset(self, last: int) -> None:
        self.steps, self.last, self.seconds = 0, last, 0.0

    def tick(self) -> None:
        self.steps += 1
        if self.steps == UNTIMED:
            self.seconds = -time.process_time()
        elif self.steps == self.last:
            self.seconds += time.process_time()


CLOCK = StepClock()


def _clocked(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    step = env.step

    def counted(action: Any) -> Any:
        CLOCK.tick()
        return step(action)

    env.step = counted  # type: ignore[method-assign]
    return env


def _cart_pole(**options: Any) -> gym.Env[Any, Any]:
    from gymnasium.envs.classic_control import CartPoleEnv

    return _clocked(CartPoleEnv(**options))


def _half_cheetah(**options: Any) -> gym.Env[Any, Any]:
    from gymnasium.envs.mujoco.half_cheetah_v5 import HalfCheetahEnv

    return _clocked(HalfCheetahEnv(**options))


def _register() -> None:
    for env_id, entry, length in (
        ("SpeedCartPole-v1", _cart_pole, 500),
        ("SpeedHalfCheetah-v5", _half_cheetah, 1_000),
    ):
        if env_id not in gym.registry:
            gym.register(env_id, entry_point=entry, max_episode_steps=length)


def measure(problem: Problem, name: str) -> Measured:
    """CPU microseconds per environment step, and our share of theirs, by round."""
    case = CASES[name]
    _register()
    _try_environment(case.env_id)
    timed = case.steps // 4 if problem.settings.quick else case.steps
    total = UNTIMED + timed
    with tempfile.TemporaryDirectory() as directory:
        learners = {"ours": _ours(case, total, directory), "theirs": _theirs(case, total)}
        rounds: dict[str, list[float]] = {"ours": [], "theirs": []}
        for turn in range(problem.settings.rounds):
            for who in sorted(learners, reverse=turn % 2 == 1):
                CLOCK.reset(total)
                learners[who]()
                rounds[who].append(CLOCK.seconds / timed * 1e6)
    return Measured.ratios_of(rounds["ours"], rounds["theirs"])


def _try_environment(env_id: str) -> None:
    try:
        gym.make(env_id).close()
    except (ImportError, gym.error.DependencyNotInstalled) as error:
        raise NotMeasuredError(str(error).splitlines()[0]) from None


def _ours(case: Case, total: int, directory: str) -> Callable[[], object]:
    config = TrainConfig(
        algo=case.algo,
        env_id=case.env_id,
        total_timesteps=total,
        eval_episodes=0,
        output_dir=directory,
        device="cpu",
        algo_kwargs={
            "hidden_sizes": case.hidden_sizes,
            "batch_size": case.batch_size,
            "learning_starts": LEARNING_STARTS,
            "buffer_capacity": BUFFER,
            "train_frequency": 1,
            "tensorboard": False,
            **case.options,
        },
    )
    return lambda: train(config)


def _theirs(case: Case, total: int) -> Callable[[], object]:
    kind = peers_sb3.find(case.algo.upper())

    def learn() -> object:
        model = kind(
            "MlpPolicy",
            case.env_id,
            device="cpu",
            learning_starts=LEARNING_STARTS,
            buffer_size=BUFFER,
            batch_size=case.batch_size,
            train_freq=1,
            gradient_steps=1,
            policy_kwargs={"net_arch": list(case.hidden_sizes)},
        )
        return model.learn(total)

    return learn
