"""Online training end to end against Stable-Baselines3: environment steps with one update each.

    python benchmarks/online_speed.py [--cases dqn sac td3] [--steps 3000] [--rounds 5]

Both libraries train through their public calls in one process, in turns, with one thread, the same
environment, networks, batches and buffers, and no evaluation. Times are CPU time per environment step,
set-up included. Stable-Baselines3's DQN is not double, so ours is not either here.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import stable_baselines3
import torch
from interleaved import interleave, print_comparison
from stable_baselines3.common.noise import NormalActionNoise

from rl_training.runtime import TrainConfig, train

CASES: dict[str, dict[str, Any]] = {
    "dqn": {"env_id": "CartPole-v1", "hidden_sizes": [64, 64], "batch_size": 64},
    "sac": {"env_id": "HalfCheetah-v5", "hidden_sizes": [256, 256], "batch_size": 256},
    "td3": {"env_id": "HalfCheetah-v5", "hidden_sizes": [256, 256], "batch_size": 256},
}
LEARNING_STARTS, BUFFER = 100, 100_000


def ours(algo: str, steps: int, directory: str) -> Callable[[], object]:
    case = CASES[algo]
    config = TrainConfig(
        algo=algo,
        env_id=case["env_id"],
        total_timesteps=steps,
        eval_episodes=0,
        checkpoint_interval=10**9,
        output_dir=directory,
        device="cpu",
        algo_kwargs={
            "hidden_sizes": case["hidden_sizes"],
            "batch_size": case["batch_size"],
            "learning_starts": LEARNING_STARTS,
            "buffer_capacity": BUFFER,
            "train_frequency": 1,
            "tensorboard": False,
            **({"double": False} if algo == "dqn" else {}),
        },
    )
    return lambda: train(config)


def theirs(algo: str, steps: int) -> Callable[[], object]:
    case = CASES[algo]
    options: dict[str, Any] = {}
    if algo == "td3":
        options["action_noise"] = NormalActionNoise(np.zeros(6), 0.1 * np.ones(6))

    def learn() -> object:
        model = getattr(stable_baselines3, algo.upper())(
            "MlpPolicy",
            case["env_id"],
            device="cpu",
            learning_starts=LEARNING_STARTS,
            buffer_size=BUFFER,
            batch_size=case["batch_size"],
            train_freq=1,
            gradient_steps=1,
            policy_kwargs={"net_arch": case["hidden_sizes"]},
            **options,
        )
        return model.learn(steps)

    return learn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--steps", type=int, default=3_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for algo in arguments.cases:
        steps = arguments.steps if algo == "dqn" else arguments.steps // 5
        with tempfile.TemporaryDirectory() as directory:
            timings = interleave(
                {"ours": ours(algo, steps, directory), "SB3": theirs(algo, steps)},
                rounds=arguments.rounds,
                calls=1,
            )
        print_comparison(f"{algo}, {steps} steps (us a run)", "ours", "SB3", timings)


if __name__ == "__main__":
    main()
