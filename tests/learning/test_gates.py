"""Does it learn at all? Seconds each; the scores that matter are in docs/benchmarks."""

from __future__ import annotations

from pathlib import Path

import pytest

from rl_training.runtime import TrainConfig, train

GATES = {
    # an untrained policy scores about 10 and -1200
    "dqn": ("CartPole-v1", 6_000, 60.0),
    "sac": ("Pendulum-v1", 4_000, -500.0),
}
OPTIONS = {
    "dqn": {
        "learning_rate": 1e-3,
        "gamma": 0.98,
        "train_frequency": 2,
        "target_update_interval": 200,
        "exploration_fraction": 0.3,
    },
    "sac": {"learning_rate": 3e-3, "gamma": 0.97, "tau": 0.01},
}


@pytest.mark.parametrize("algo", GATES)
def test_a_short_online_run_learns(algo: str, tmp_path: Path) -> None:
    env_id, steps, least = GATES[algo]
    config = TrainConfig(
        algo=algo,
        env_id=env_id,
        seed=1,
        total_timesteps=steps,
        eval_episodes=10,
        output_dir=str(tmp_path),
        algo_kwargs={
            "hidden_sizes": [64, 64],
            "batch_size": 64,
            "learning_starts": 500,
            "eval_interval": steps,
            **OPTIONS[algo],
        },
    )
    assert train(config).metrics["eval/return_mean"] >= least
