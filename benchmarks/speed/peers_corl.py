"""CORL's update, from a checkout of CORL.

Its modules are imported as they are; what they import but do not need here is stubbed.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import torch
from torch import nn

from benchmarks.speed.problem import ACTION_DIM, BATCH, OBS_DIM, Problem
from benchmarks.speed.timing import Contestant, NotMeasuredError

Update = Callable[[Any], object]


def update(problem: Problem, algo: str) -> Contestant:
    """What CORL's `train` does per update, without its logging."""
    if problem.settings.corl is None:
        raise NotMeasuredError("needs a checkout of CORL: --corl PATH")
    corl = _import(problem.settings.corl, algo)
    buffer = corl.ReplayBuffer(OBS_DIM, ACTION_DIM, problem.settings.rows, "cpu")
    buffer.load_d4rl_dataset(problem.fields)
    step = TRAINERS[algo](corl)

    def train(updates: int) -> None:
        for _ in range(updates):
            step([part.to("cpu") for part in buffer.sample(BATCH)])

    return Contestant(train, unit=2)


def _import(checkout: Path, name: str) -> Any:
    path = checkout / "algorithms" / "offline" / f"{name}.py"
    if not path.is_file():
        raise NotMeasuredError(f"{checkout} is not a checkout of CORL: it has no {path}")
    spec = importlib.util.spec_from_file_location(f"corl_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    stubs = {stub: MagicMock() for stub in ("d4rl", "gym", "pyrallis", "wandb")}
    hidden = {stub: sys.modules[stub] for stub in stubs if stub in sys.modules}
    sys.modules.update(stubs)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        for stub in stubs:
            del sys.modules[stub]
        sys.modules.update(hidden)
    return module


def _adam(network: nn.Module, rate: float = 3e-4) -> torch.optim.Optimizer:
    return torch.optim.Adam(network.parameters(), lr=rate)


def _without_third_layer(network: nn.Sequential) -> None:
    """Its AWAC and CQL have three hidden layers, written into the classes."""
    del network[4:6]


def _td3_bc(corl: Any) -> Update:
    actor = corl.Actor(OBS_DIM, ACTION_DIM, 1.0)
    first, second = (corl.Critic(OBS_DIM, ACTION_DIM) for _ in range(2))
    trainer = corl.TD3_BC(1.0, actor, _adam(actor), first, _adam(first), second, _adam(second))
    return trainer.train


def _iql(corl: Any) -> Update:
    actor = corl.GaussianPolicy(OBS_DIM, ACTION_DIM, 1.0)
    critics, value = corl.TwinQ(OBS_DIM, ACTION_DIM), corl.ValueFunction(OBS_DIM)
    trainer = corl.ImplicitQLearning(
        1.0, actor, _adam(actor), critics, _adam(critics), value, _adam(value)
    )
    return trainer.train


def _awac(corl: Any) -> Update:
    actor = corl.Actor(OBS_DIM, ACTION_DIM, 256)
    first, second = (corl.Critic(OBS_DIM, ACTION_DIM, 256) for _ in range(2))
    for network in (actor, first, second):
        _without_third_layer(network._mlp)
    trainer = corl.AdvantageWeightedActorCritic(
        actor, _adam(actor), first, _adam(first), second, _adam(second), awac_lambda=1 / 3
    )
    return trainer.update


def _cql(corl: Any) -> Update:
    actor = corl.TanhGaussianPolicy(OBS_DIM, ACTION_DIM, 1.0, orthogonal_init=True)
    _without_third_layer(actor.base_network)
    first, second = (
        corl.FullyConnectedQFunction(OBS_DIM, ACTION_DIM, True, n_hidden_layers=2) for _ in range(2)
    )
    trainer = corl.ContinuousCQL(
        first,
        _adam(first),
        second,
        _adam(second),
        actor,
        _adam(actor, 3e-5),
        target_entropy=-float(ACTION_DIM),
        policy_lr=3e-5,
        cql_alpha=10.0,
        bc_steps=0,  # as in its TrainConfig; the class has another default
    )
    return trainer.train


TRAINERS: dict[str, Callable[[Any], Update]] = {
    "td3_bc": _td3_bc,
    "iql": _iql,
    "awac": _awac,
    "cql": _cql,
}
