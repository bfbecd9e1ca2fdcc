"""Does it learn at all? Seconds each; the scores that matter are in docs/benchmarks.

A gate is worth what it refuses: the slow tests here break the algorithms in ways that run without an
error, and expect the gate to notice. Measured, with seeds 1, 2 and 3 of each where not said otherwise:

| gate | threshold | random | learned | best of the broken ones |
|---|---|---|---|---|
| DQN, CartPole | 60 | 22 | 142, 187, 140 | 31 (actions of other rows, seed 1) |
| SAC, Pendulum | -500 | -1,200 | -206, -159, -145 | -1,172 (targets never move, seed 1 only) |
"""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.support.faults import (
    Fault,
    ascends,
    keeps_its_targets,
    learns_nothing,
    other_rows,
    sees,
)

from rl_training.algorithms import get_algorithm_spec
from rl_training.runtime import TrainConfig, train
from rl_training.runtime.loop.divergence import DivergedError

GATES = {
    "dqn": ("CartPole-v1", 6_000, 60.0),
    "sac": ("Pendulum-v1", 4_000, -500.0),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "dqn": {
        "learning_rate": 1e-3,
        "gamma": 0.98,
        "train_frequency": 2,
        "target_update_interval": 200,
        "exploration_fraction": 0.3,
    },
    "sac": {"learning_rate": 3e-3, "gamma": 0.97, "tau": 0.01},
}


def score(algo: str, tmp_path: Path, seed: int = 1, **options: Any) -> float:
    env_id, steps, _ = GATES[algo]
    config = TrainConfig(
        algo=algo,
        env_id=env_id,
        seed=seed,
        total_timesteps=steps,
        eval_episodes=10,
        output_dir=str(tmp_path),
        algo_kwargs={
            "hidden_sizes": [64, 64],
            "batch_size": 64,
            "learning_starts": 500,
            "eval_interval": steps,
            **OPTIONS[algo],
            **options,
        },
    )
    return train(config).metrics["eval/return_mean"]


@pytest.mark.parametrize("algo", GATES)
def test_a_short_online_run_learns(algo: str, tmp_path: Path) -> None:
    assert score(algo, tmp_path) >= GATES[algo][2]


BROKEN: dict[tuple[str, str], Fault] = {
    ("dqn", "nothing is learned"): learns_nothing,
    ("dqn", "the loss is ascended"): ascends("critic"),
    ("dqn", "targets never move"): keeps_its_targets,
    ("dqn", "episodes never end"): sees(terminations=torch.zeros_like),
    ("dqn", "actions of other rows"): sees(actions=other_rows),
    ("sac", "nothing is learned"): learns_nothing,
    ("sac", "the critics' loss is ascended"): ascends("critic"),
    ("sac", "the actor's loss is ascended"): ascends("actor"),
    ("sac", "targets never move"): keeps_its_targets,
    ("sac", "actions of other rows"): sees(actions=other_rows),
    ("sac", "rewards of the other sign"): sees(rewards=torch.neg),
}


@pytest.mark.slow
@pytest.mark.parametrize(("algo", "fault"), BROKEN)
def test_a_broken_algorithm_does_not_pass(
    algo: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = BROKEN[algo, fault](get_algorithm_spec(algo).algorithm, monkeypatch)
    found = -math.inf
    with suppress(DivergedError):  # which no gate lets pass
        found = score(algo, tmp_path, **options)
    assert found < GATES[algo][2]
