"""d3rlpy's update, with the drawing of its batch."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from benchmarks.speed.problem import ACTION_DIM, BATCH, HIDDEN, OBS_DIM, Problem
from benchmarks.speed.timing import Contestant, NotMeasuredError

NAMES = {"rebrac": "ReBRAC", "crr": "CRR", "td3_bc": "TD3PlusBC", "iql": "IQL"}
OPTIONS: dict[str, dict[str, Any]] = {"crr": {"n_critics": 2, "n_action_samples": 4}}


def update(problem: Problem, algo: str) -> Contestant:
    """What d3rlpy's `fitter` does per update, without its logging."""
    try:
        import d3rlpy
    except ImportError:
        raise NotMeasuredError("d3rlpy is not installed") from None

    def encoder(**options: Any) -> Any:
        return d3rlpy.models.VectorEncoderFactory(list(HIDDEN), **options)

    networks = {
        "actor_encoder_factory": encoder(),
        "critic_encoder_factory": encoder(use_layer_norm=algo == "rebrac"),
    }
    if algo == "iql":
        networks["value_encoder_factory"] = encoder()
    config = getattr(d3rlpy.algos, f"{NAMES[algo]}Config")
    options = OPTIONS.get(algo, {})
    algorithm = config(batch_size=BATCH, **networks, **options).create(device=False)
    algorithm.create_impl((OBS_DIM,), ACTION_DIM)
    buffer = _buffer(problem)

    def train(updates: int) -> None:
        for _ in range(updates):
            algorithm.update(buffer.sample_transition_batch(BATCH))

    return Contestant(train, unit=2)


@cache  # it takes many seconds
def _buffer(problem: Problem) -> Any:
    from d3rlpy.dataset import MDPDataset

    names = ("observations", "actions", "rewards", "terminals", "timeouts")
    return MDPDataset(**{name: problem.fields[name].astype(np.float32) for name in names})
