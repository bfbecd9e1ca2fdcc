"""Score cards of policies, as `rl-training ope --json` writes them."""

from __future__ import annotations

from typing import Any

import numpy as np


def score_card(**changes: Any) -> dict[str, Any]:
    """Card of a policy with continuous actions that is judged better than its log."""
    draw = np.random.default_rng(0)
    returns = draw.normal(-310.0, 60.0, 80)
    values = draw.normal(-240.0, 45.0, 80)
    actions = draw.normal(0.0, 0.5, (2, 500)).clip(-1, 1)
    card = {
        "policy": {
            "path": "runs/iql__Pendulum-v1__seed0__20260101-000000",
            "algo": "iql",
            "acts": "stochastic",
            "trained_on_this_log": True,
        },
        "log": {
            "source": "pendulum/mixed-v0",
            "rows": 16000,
            "episodes": 80,
            "cut_episodes": 80,
            "return_mean": -612.3,
            "return_std": 204.9,
        },
        "gamma": 0.99,
        "confidence": 0.9,
        "behaviour": {"value": -310.0, "low": -321.5, "high": -298.7},
        "estimates": [
            estimate("fqe", "fitted Q evaluation", -240.0, 14.0, None),
            estimate("wis", "weighted importance sampling", -261.0, 38.0, 21.4),
            estimate("wdr", "weighted doubly robust", -247.0, 22.0, 21.4),
            {
                "name": "is",
                "label": "per-decision importance sampling",
                "applies": False,
                "reason": "the effective sample size is 1.2",
                "value": None,
                "low": None,
                "high": None,
                "effective_sample_size": 1.2,
                "difference": None,
            },
        ],
        "support": {"unlike_share": 0.08, "action_distance": 0.21},
        "behaviour_model": {
            "source": "fitted",
            "calibration": {"log_likelihood": -0.41, "coverage_of_90_percent": 0.88},
        },
        "verdict": "better than the log",
        "reasons": [
            "fitted Q evaluation is above the log by 70 [52, 88]",
            "8 % of the policy's actions are unlike any logged one",
        ],
        "notes": ["the policy was trained on this log, so estimates from it are too high"],
        "pictures": {
            "policy_values": values.tolist(),
            "behaviour_returns": returns.tolist(),
            "log10_weights": draw.normal(-0.6, 0.9, 80).tolist(),
            "actions": {
                "kind": "continuous",
                "log": actions.tolist(),
                "policy": (0.7 * actions + 0.2).tolist(),
            },
            "episodes": {
                "log": returns.tolist(),
                "policy": (0.4 * returns + 0.6 * values).tolist(),
            },
        },
    }
    return {**card, **changes}


def estimate(
    name: str, label: str, value: float, doubt: float, sample: float | None
) -> dict[str, Any]:
    """Entry of an estimator that applies."""
    return {
        "name": name,
        "label": label,
        "applies": True,
        "reason": None,
        "value": value,
        "low": value - doubt,
        "high": value + doubt,
        "effective_sample_size": sample,
        "difference": {
            "value": value + 310.0,
            "low": value + 310.0 - doubt,
            "high": value + 310.0 + doubt,
        },
    }
