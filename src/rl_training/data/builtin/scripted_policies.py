"""Scripted policies of several levels of skill in classic control tasks.

Each task takes its levels in turn, one per episode, and repeats exactly with its seed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rl_training.data.builtin.rows import Rows, stack_rows
from rl_training.envs.rollout import Act, roll_out


def pendulum(episodes: int, levels: Sequence[tuple[float, float]], seed: int) -> Rows:
    """Swing-up; a level is (share of random actions, noise)."""
    rng = np.random.default_rng(seed)

    def policy(level: tuple[float, float]) -> Act:
        random_share, noise = level

        def act(obs: NDArray[Any]) -> NDArray[np.float32]:
            if rng.random() < random_share:
                torque = rng.uniform(-2.0, 2.0)
            else:
                torque = _fold(_swing_up_torque(obs) + noise * rng.standard_normal(), 2.0)
            return np.array([torque], np.float32)

        return act

    return _play("Pendulum-v1", [policy(level) for level in levels], episodes, seed)


def cart_pole(episodes: int, levels: Sequence[tuple[float, float]], seed: int) -> Rows:
    """Balancing; a level is (share of random actions, position to steer the cart to).

    The track ends at 2.4: a cart steered beyond that balances the pole until it runs off.
    """
    rng = np.random.default_rng(seed)

    def policy(level: tuple[float, float]) -> Act:
        random_share, target = level

        def act(obs: NDArray[Any]) -> int:
            if rng.random() < random_share:
                return int(rng.integers(2))
            return _balancing_push(obs, target)

        return act

    return _play("CartPole-v1", [policy(level) for level in levels], episodes, seed)


def mountain_car(episodes: int, levels: Sequence[float], seed: int) -> Rows:
    """Up the hill; a level is the share of pushes along the speed, the others go against it.

    Pushing along the speed pumps energy and gets there; pushing against it takes energy out.
    """
    rng = np.random.default_rng(seed)

    def policy(pumping_share: float) -> Act:
        def act(obs: NDArray[Any]) -> NDArray[np.float32]:
            force = 0.7 if (rng.random() < pumping_share) == (obs[1] >= 0.0) else -0.7
            return np.array([_fold(force + 0.4 * rng.standard_normal(), 1.0)], np.float32)

        return act

    policies = [policy(level) for level in levels]
    return _play("MountainCarContinuous-v0", policies, episodes, seed)


def _play(env_id: str, policies: Sequence[Act], episodes: int, seed: int) -> Rows:
    """Whole episodes, taking the policies in turn; each has a seed of its own."""
    env = gym.make(env_id)
    played = (
        roll_out(env, policies[episode % len(policies)], seed=seed + episode, episodes=1)
        for episode in range(episodes)
    )
    rows = stack_rows(chain.from_iterable(played))
    env.close()
    return rows


def _fold(value: float, bound: float) -> float:
    """Reflect into the bounds: clipped noise would pile up on them."""
    if abs(value) > bound:
        value = math.copysign(2.0 * bound, value) - value
    return max(-bound, min(bound, value))


def _swing_up_torque(obs: NDArray[Any]) -> float:
    """Swings the pendulum up by pumping energy, then holds it; about -160 per episode."""
    cos, sin, speed = (float(value) for value in obs)
    if cos > 0.8 and abs(speed) < 3.5:
        torque = -10.0 * math.atan2(sin, cos) - 2.5 * speed
    else:
        missing_energy = 5.0 - 5.0 * cos - speed**2 / 6.0  # m g l / 2 = 5, inertia 1/3
        # At rest, hanging, there is no motion to pump: push to either side.
        torque = 4.0 * missing_energy * (speed or 1.0)
    # The limit of 2 is left to noise: data that sits on the bounds hides what lies beyond them.
    return max(-1.7, min(1.7, torque))


def _balancing_push(obs: NDArray[Any], target: float) -> int:
    """Keeps the pole leaning towards the target, and upright once there."""
    position, speed, angle, spin = (float(value) for value in obs)
    lean = max(-0.1, min(0.1, 0.06 * (target - position) - 0.1 * speed))
    return int(angle - lean + 0.35 * spin > 0.0)
