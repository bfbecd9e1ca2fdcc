"""Run directories with given scores and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rl_training.config import dump_yaml

SECONDS = {"update": 6.0, "evaluate": 3.0, "other": 1.0}


def make_run(
    directory: Path,
    scores: dict[int, float],
    seed: int = 0,
    finished: bool = True,
    **changes: Any,
) -> Path:
    """A run directory with these scores by step, whose episodes are 2 apart on average."""
    run = directory / f"run{len(list(directory.glob('*')))}"
    run.mkdir(parents=True)
    config = {
        "algo": "td3_bc",
        "env_id": "Pendulum-v1",
        "seed": seed,
        "eval_episodes": 5,
        **changes,
    }
    (run / "config.yaml").write_text(dump_yaml(config))
    rows = [
        {"step": step, "eval/return_mean": mean, "eval/return_std": 2.0}
        for step, mean in scores.items()
    ]
    rows.append({"step": 30, "train/actor_loss": 0.5})
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if finished:
        result = {"step": 30, "stop_reason": "total_timesteps", "metrics": {}, "seconds": SECONDS}
        (run / "result.json").write_text(json.dumps(result))
    return run
