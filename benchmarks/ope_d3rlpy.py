"""Fitted Q evaluation by d3rlpy of a policy of ours, run by an interpreter that has d3rlpy.

    PYTHON -m benchmarks.ope_d3rlpy '{"task": "pendulum", "algo": "td3_bc", "step": 10000, ...}'

Prints one line of JSON: the value at first states by every seed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import d3rlpy
import numpy as np
import torch
from d3rlpy.torch_utility import TorchMiniBatch

from benchmarks.ope_policies import Trained, logged
from rl_training.runtime.policy import Policy

BATCH, LEARNING_RATE, HIDDEN = 256, 1e-3, [128, 128]  # as ours
TARGET_INTERVAL = 20  # updates between copies into the target, about the lag of our tau 0.05


def fitted_values(policy: Policy, task: str, gamma: float, seeds: int, updates: int) -> list[float]:
    """Fit one critic per seed, on batches of the whole log; values are in the log's units."""
    log = logged(task)
    scale = 1 / float(
        np.abs(log.episode_returns).mean()
    )  # of rewards, so that critics learn quickly
    columns = {
        "observations": log.obs,
        "actions": log.actions.reshape(len(log), -1),
        "rewards": scale * log.rewards.reshape(-1, 1),
        "next_observations": log.next_obs,
        "terminals": log.terminations.reshape(-1, 1),
    }
    first = log.obs[torch.from_numpy(log.episode_starts)]
    chosen: Any = policy.predict(first.numpy()).reshape(len(first), -1)
    acting: Any = SimpleNamespace(
        impl=SimpleNamespace(predict_best_action=lambda obs: _acted(policy, obs))
    )
    values = []
    for seed in range(seeds):
        d3rlpy.seed(seed)
        evaluation = _evaluation(acting, gamma, discrete=log.discrete)
        evaluation.create_impl((log.obs_dim,), log.num_actions or log.action_width)
        assert evaluation.impl is not None
        for update in range(updates):
            rows = torch.randint(len(log), (BATCH,))
            evaluation.impl.update(_batch({k: v[rows] for k, v in columns.items()}), update)
        estimates = evaluation.predict_value(
            first.numpy(), chosen[:, 0] if log.discrete else chosen
        )
        values.append(float(estimates.mean()) / scale)
    return values


def _evaluation(acting: Any, gamma: float, *, discrete: bool) -> Any:
    config = d3rlpy.ope.FQEConfig(
        learning_rate=LEARNING_RATE,
        batch_size=BATCH,
        gamma=gamma,
        encoder_factory=d3rlpy.models.VectorEncoderFactory(HIDDEN),
        target_update_interval=TARGET_INTERVAL,
    )
    return (d3rlpy.ope.DiscreteFQE if discrete else d3rlpy.ope.FQE)(acting, config)


def _acted(policy: Policy, obs: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return policy(obs)


def _batch(columns: dict[str, torch.Tensor]) -> TorchMiniBatch:
    unused = torch.zeros_like(columns["rewards"])
    return TorchMiniBatch(
        **columns,
        next_actions=columns["actions"],
        returns_to_go=unused,
        intervals=torch.ones_like(unused),
        device="cpu",
    )


def main() -> None:
    torch.set_num_threads(1)
    asked = json.loads(sys.argv[1])
    policy = Trained(**asked["policy"]).load(Path(asked["output"]))
    values = fitted_values(
        policy, asked["policy"]["task"], asked["gamma"], asked["seeds"], asked["updates"]
    )
    print(json.dumps({"values": values, "d3rlpy": d3rlpy.__version__}))


if __name__ == "__main__":
    main()
