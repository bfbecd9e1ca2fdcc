"""Learning-rate factors as pure functions of the step: nothing to save, nothing to drift."""

from __future__ import annotations

import math
from typing import Literal

from rl_training.config import Options, option

ScheduleKind = Literal["constant", "linear", "cosine"]


class ScheduleConfig(Options):
    kind: ScheduleKind = option("constant", "shape of the decay")
    final: float = option(0.0, "factor reached at the end of the horizon", ge=0, le=1)
    horizon: int | None = option(
        None, "steps until then; null = the run's total", ge=1, unset="the run's total"
    )


def factor(schedule: ScheduleConfig, step: int, *, total: int, warmup_steps: int) -> float:
    """Return the factor of the learning rate at update number `step`, from 0."""
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    if schedule.kind == "constant":
        return 1.0
    horizon = schedule.horizon if schedule.horizon is not None else total
    progress = min(1.0, (step - warmup_steps) / max(1, horizon - warmup_steps))
    if schedule.kind == "linear":
        share = 1.0 - progress
    else:
        share = 0.5 * (1.0 + math.cos(math.pi * progress))
    return schedule.final + (1.0 - schedule.final) * share
