"""Public losses refuse names that they do not know, and shapes that would be broadcast."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import rl_training.algorithms as algorithms
from rl_training.algorithms import list_algorithm_specs
from rl_training.algorithms.targets import td_target

B, ROW, PAIR, ACTIONS = 6, torch.rand(6), torch.rand(2, 6), torch.rand(6, 3)
CRITIC = {"q_values": PAIR, "target_q": ROW}
ENTROPY = {"log_probs": ROW, "log_alpha": torch.zeros(()), "target_entropy": -1.0}
SOFT = {**CRITIC, "policy_q_values": PAIR, **ENTROPY}
POLICY = {**CRITIC, "policy_q_values": ROW}
CLONE = {"policy_actions": ACTIONS, "actions": ACTIONS}
WEIGHTED = {"log_probs": ROW, "advantages": ROW, "max_advantage_weight": 100.0}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "awac": {**CRITIC, **WEIGHTED, "awac_lambda": 1.0, "weight_normalization": "exp"},
    "bc": CLONE,
    "cql": {**SOFT, "gaps": PAIR, "cql_alpha": 1.0},
    "crr": {**CRITIC, "log_probs": ROW, "q_samples": torch.rand(B, 4), "advantage_type": "mean",
            "weight_type": "exp", "beta": 1.0, "max_weight": 20.0},
    "ddpg": POLICY,
    "dqn": {"q_values": ROW, "target_q": ROW, "weights": ROW},
    "her": {**POLICY, "actions": ACTIONS},
    "iql": {**CRITIC, "min_q": ROW, "values": ROW, "log_probs": ROW, "expectile": 0.7, "beta": 3.0,
            "max_advantage_weight": 100.0},
    "rebrac": {**POLICY, **CLONE, "actor_bc_weight": 1.0},
    "redq": SOFT,
    "rlpd": SOFT,
    "sac": SOFT,
    "td3": POLICY,
    "td3_bc": {**POLICY, **CLONE, "bc_alpha": 2.5},
    "tqc": {"quantiles": torch.rand(2, B, 5), "target_quantiles": torch.rand(B, 8),
            "policy_quantiles": torch.rand(2, B, 5), **ENTROPY},
}  # fmt: skip
CASES = [
    (name, argument)
    for name, arguments in ARGUMENTS.items()
    for argument, value in arguments.items()
    if isinstance(value, torch.Tensor) and value.ndim and (name, argument) != ("her", "actions")
]


def loss_of(name: str) -> Any:
    return getattr(algorithms, f"{name}_loss")


def test_every_public_loss_is_here() -> None:
    built_in = {
        spec.name
        for spec in list_algorithm_specs()
        if spec.algorithm.__module__.startswith("rl_training.algorithms.")
    }
    assert built_in == {*ARGUMENTS}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_the_documented_shapes_are_taken(name: str) -> None:
    assert all(value.ndim == 0 for value in loss_of(name)(**ARGUMENTS[name]).values())


@pytest.mark.parametrize(("name", "argument"), CASES)
def test_a_shape_that_would_be_broadcast_is_refused(name: str, argument: str) -> None:
    arguments = ARGUMENTS[name]
    column = arguments[argument].unsqueeze(-1)
    with pytest.raises(ValueError, match="shape"):
        loss_of(name)(**{**arguments, argument: column})


@pytest.mark.parametrize("name", ["rewards", "terminations", "next_values"])
def test_targets_of_columns_are_refused(name: str) -> None:
    rows = {"rewards": ROW, "terminations": ROW, "next_values": ROW}
    with pytest.raises(ValueError, match=r"shape \(batch,\)"):
        td_target(**{**rows, name: ROW[:, None]}, gamma=0.99)


@pytest.mark.parametrize(
    ("name", "option", "message"),
    [
        ("crr", "advantage_type", "advantage_type must be 'mean' or 'max', got 'median'"),
        ("crr", "weight_type", "weight_type must be 'exp' or 'binary', got 'median'"),
        ("awac", "weight_normalization", "must be 'exp' or 'softmax', got 'median'"),
    ],
)
def test_a_name_that_no_loss_knows_is_refused(name: str, option: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        loss_of(name)(**{**ARGUMENTS[name], option: "median"})
