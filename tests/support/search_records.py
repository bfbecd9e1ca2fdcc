"""Records of searches without their runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.runs.search_record import FreshScore, SearchRecord, SearchTrial, TrialState

AXES: dict[str, Any] = {
    "learning_rate": {"log_uniform": [1e-5, 1e-1]},
    "bc_alpha": {"uniform": [0.1, 40.0]},
    "batch_size": [64, 128, 256],
    "weight_type": ["exp", "binary"],
    "beta": {"log_uniform": [0.1, 10.0], "when": {"weight_type": "exp"}},
}


def write_search(directory: Path, trials: int = 40, texts: Sequence[str] = ()) -> Path:
    """Write the record of a search that found something; `texts` stand in names, values and reasons."""
    draw = np.random.default_rng(0)
    listed = [_trial(number, draw, texts) for number in range(trials)]
    record = SearchRecord(
        {
            "config": {"algo": texts[0] if texts else "crr", "env_id": "Pendulum-v1"},
            "axes": {**AXES, **{text: [1, 2] for text in texts}},
            "metric": "eval/return_mean",
            "mode": "max",
            "sampler": "tpe",
            "pruner": texts[1] if texts else "median",
            "seeds": [1, 2, 3],
        },
        {"optuna": "5.0.0"},
        trials,
        tuple(listed),
        importance={**dict.fromkeys(texts, 0.1), "learning_rate": 0.6, "bc_alpha": 0.3},
        importance_note="of options that all trials have",
    )
    best = record.best
    assert best is not None
    assert best.value is not None
    seeds = {seed: best.value - 20.0 - seed for seed in range(4, 9)}
    score = best.value - 26.0
    fresh = FreshScore(
        best.number,
        seeds,
        dict.fromkeys((9,), "".join(texts)),
        score,
        score - 5,
        score + 5,
        score,
        0.95,
    )
    directory.mkdir(parents=True)
    SearchRecord(**{**vars(record), "fresh": fresh}).write(directory)
    return directory


def _trial(number: int, draw: np.random.Generator, texts: Sequence[str]) -> SearchTrial:
    values: dict[str, Any] = {
        "learning_rate": float(10 ** draw.uniform(-5, -1)),
        "bc_alpha": float(draw.uniform(0.1, 40.0)),
        "batch_size": int(draw.choice([64, 128, 256])),
        "weight_type": str(draw.choice(["exp", "binary"])),
    }
    if values["weight_type"] == "exp":
        values["beta"] = float(10 ** draw.uniform(-1, 1))
    values |= {text: texts[int(draw.integers(len(texts)))] for text in texts}
    value = (
        -200.0 - 150 * abs(np.log10(values["learning_rate"]) + 3) - 4 * abs(values["bc_alpha"] - 10)
    )
    states: list[TrialState] = ["complete", "complete", "pruned", "complete", "failed"]
    state = states[number % 5] if number else "complete"
    if state == "failed":
        return SearchTrial(number, values, values, "failed", reason=f"seed 2: {''.join(texts)}")
    steps = {300: float(value) - 40.0}
    scores = {seed: float(value + draw.normal(0, 15)) for seed in (1, 2, 3)}
    return SearchTrial(number, values, values, state, float(value), scores, steps)
