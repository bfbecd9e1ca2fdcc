"""Run directories as training leaves them, with curves that are made up, in a few milliseconds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import yaml


def make_run(
    directory: Path,
    algo: str,
    seed: int,
    *,
    level: float = -150.0,
    env_id: str = "Pendulum-v1",
    rows: int = 40,
    metrics: int = 6,
    finished: bool = True,
    warnings: tuple[str, ...] = (),
    names: tuple[str, ...] = (),
    **options: Any,
) -> Path:
    """Write a run whose return rises from -1,400 to about `level`."""
    draw = np.random.default_rng([seed, len(algo), rows])
    run = directory / f"{algo}__{env_id}__seed{seed}__{len(list(directory.glob('*')))}"
    run.mkdir(parents=True)
    config = {
        "algo": algo,
        "env_id": env_id,
        "seed": seed,
        "total_timesteps": 100 * rows,
        "eval_episodes": 10,
        "algo_kwargs": {"batch_size": 256, **options},
    }
    (run / "config.yaml").write_text(yaml.safe_dump(config, allow_unicode=True))
    progress = 1 / (1 + np.exp(-10 * (np.arange(rows) / rows - 0.35)))
    returns = -1_400 + (level + 1_400) * progress + draw.normal(0, 40, rows)
    losses = np.exp(draw.normal(0, 0.2, (metrics, rows)) + 4 - 5 * progress)
    keys = [*(f"train/loss_{number}" for number in range(metrics)), *names]
    lines = []
    for row in range(rows):
        step = {"step": 100 * (row + 1), "updates": 100 * row, "epoch": 0}
        score = {"eval/return_mean": returns[row], "eval/return_std": 30.0}
        terms = dict(zip(keys, [*losses[:, row], *losses[: len(names), row]], strict=True))
        lines.append(json.dumps({**step, **score, **terms}))
    (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    (run / "metadata.json").write_text(json.dumps(_metadata(algo, seed)))
    if finished:
        seconds = {"collect": 3.0, "sample": 0.4, "update": 20.0 + seed, "evaluate": 2.0}
        result = {"step": 100 * rows, "stop_reason": "total_timesteps", "metrics": {}}
        result |= {"seconds": seconds, "warnings": list(warnings)}
        (run / "result.json").write_text(json.dumps(result))
    return run


def _metadata(algo: str, seed: int) -> dict[str, Any]:
    return {
        "created": "2026-01-01T00:00:00+00:00",
        "argv": ["rl-training", "train", f"{algo}/pendulum", f"seed={seed}"],
        "versions": {"rl-training": "0.1.0"},
        "git": None,
    }
