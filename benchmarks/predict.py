"""`Policy.predict` on one observation against Stable-Baselines3's `TD3.predict`, in one thread.

    pip install stable-baselines3
    python benchmarks/predict.py [--rounds 15] [--calls 2000]

Same architecture on both sides; ours also normalises the observation.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.spaces import Box
from interleaved import interleave, print_comparison
from numpy.typing import NDArray
from stable_baselines3 import TD3

from rl_training.algorithms.td3_bc import TD3BC, TD3BCConfig
from rl_training.data.normalizers import ObservationNormalizer
from rl_training.runtime.policy import Policy
from rl_training.spec import ProblemSpec

CASES = ((3, 1, (64, 64)), (17, 6, (256, 256)))
BOUND = 2.0


class Spaces(gym.Env[NDArray[np.float32], NDArray[np.float32]]):
    """As much of an environment as SB3 needs to build a policy."""

    def __init__(self, obs_dim: int, action_dim: int) -> None:
        self.observation_space = Box(-np.inf, np.inf, (obs_dim,), np.float32)
        self.action_space = Box(-BOUND, BOUND, (action_dim,), np.float32)


def our_policy(obs_dim: int, action_dim: int, hidden_sizes: Sequence[int]) -> Policy:
    bounds = (-BOUND,) * action_dim, (BOUND,) * action_dim
    spec = ProblemSpec(obs_dim, "continuous", action_dim, *bounds)
    algorithm = TD3BC(spec, TD3BCConfig(hidden_sizes=tuple(hidden_sizes)))
    return Policy(algorithm, ObservationNormalizer(torch.randn(obs_dim), torch.rand(obs_dim) + 1))


def sb3_policy(obs_dim: int, action_dim: int, hidden_sizes: Sequence[int]) -> Any:
    kwargs = {"net_arch": list(hidden_sizes)}
    env = Spaces(obs_dim, action_dim)
    return TD3("MlpPolicy", env, policy_kwargs=kwargs, buffer_size=1, device="cpu")


def on_fresh(predict: Callable[..., object], observations: Any, **kwargs: Any) -> Any:
    """A call that takes the next observation each time, so that nothing stays in the cache."""
    turn = 0

    def call() -> None:
        nonlocal turn
        turn = (turn + 1) % len(observations)
        predict(observations[turn], **kwargs)

    return call


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=2000, help="calls per round")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    for obs_dim, action_dim, hidden_sizes in CASES:
        observations = list(rng.standard_normal((1000, obs_dim), np.float32))
        ours = our_policy(obs_dim, action_dim, hidden_sizes)
        sb3 = sb3_policy(obs_dim, action_dim, hidden_sizes)
        contestants = {
            "ours": on_fresh(ours.predict, observations),
            "SB3": on_fresh(sb3.predict, observations, deterministic=True),
        }
        timings = interleave(contestants, rounds=arguments.rounds, calls=arguments.calls)
        title = f"obs {obs_dim}, act {action_dim}, {'-'.join(map(str, hidden_sizes))}"
        print_comparison(title, "ours", "SB3", timings)


if __name__ == "__main__":
    main()
