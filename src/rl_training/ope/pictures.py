"""Actions of log and policy side by side, and the numbers that a card's page draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from rl_training.data.support import Support
from rl_training.ope.judged_log import JudgedLog, Numbers
from rl_training.ope.judged_policy import JudgedPolicy
from rl_training.runtime.prepare import TrainingData

ROWS = 10_000  # in which the policy's actions are compared with the logged ones
DRAWN = 1_000  # numbers of a picture


@dataclass(frozen=True)
class ComparedActions:
    """Actions of log and policy in the same states: (rows, dimensions) in the log's units, or choices."""

    logged: Numbers
    policy: Numbers
    choices: int | None  # number of discrete ones
    unlike_share: float  # of the policy's actions, outside of the log's support
    distance: float  # root mean square in [-1, 1], or the share of other choices


def compare_actions(policy: JudgedPolicy, log: JudgedLog, data: TrainingData) -> ComparedActions:
    """Let the policy act in states of the log."""
    assert data.dataset is not None
    learning, raw = data.dataset.learning, log.dataset
    count = min(len(raw), ROWS)
    rows = np.sort(np.random.default_rng(0).choice(len(raw), count, replace=False))
    batch = learning.gather(rows)
    actions = policy.actions(raw.gather(rows).obs)
    episodes = np.searchsorted(log.starts, rows, side="right") - 1
    unlike = Support.measure(learning, seed=0).unlike(batch.obs, actions, episodes)
    if policy.spec.action_kind == "discrete":
        distance = float((actions != batch.actions).double().mean())
        choices: int | None = policy.spec.action_dim
        logged, taken = batch.actions, actions
    else:
        distance = float((actions - batch.actions).square().mean().sqrt())
        choices = None
        low, high = torch.tensor(policy.spec.action_low), torch.tensor(policy.spec.action_high)
        logged, taken = (low + (a + 1) / 2 * (high - low) for a in (batch.actions, actions))
    return ComparedActions(
        logged.double().numpy(),
        taken.double().numpy(),
        choices,
        float(unlike.double().mean()),
        distance,
    )


def draw(
    policy_values: Numbers, returns: Numbers, weights: Numbers | None, actions: ComparedActions
) -> dict[str, Any]:
    """Collect plain lists of at most `DRAWN` numbers, rounded to what a picture shows."""
    return {
        "policy_values": _some(policy_values),
        "behaviour_returns": _some(returns),
        "log10_weights": None if weights is None else _some(weights),
        "actions": _drawn_actions(actions),
        "episodes": {"log": _some(returns), "policy": _some(policy_values)},
    }


def _drawn_actions(actions: ComparedActions) -> dict[str, Any]:
    if actions.choices is not None:
        counts = [
            np.bincount(a.astype(np.int64), minlength=actions.choices).tolist()
            for a in (actions.logged, actions.policy)
        ]
        return {"kind": "discrete", "log": counts[0], "policy": counts[1]}
    columns = [[_some(column) for column in a.T] for a in (actions.logged, actions.policy)]
    return {"kind": "continuous", "log": columns[0], "policy": columns[1]}


def _some(values: Numbers) -> list[float | None]:
    """Every k-th number; null for weights of zero, whose logarithm JSON cannot hold."""
    step = max(1, -(-len(values) // DRAWN))
    return [float(f"{v:.6g}") if np.isfinite(v) else None for v in values[::step]]
