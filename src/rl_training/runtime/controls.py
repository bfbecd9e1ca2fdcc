"""Control of a run: the callbacks that the `control` group of options asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rl_training.runtime.config.controls import ControlsConfig
from rl_training.runtime.config.schedules import ScheduleConfig
from rl_training.runtime.loop.budget import Budget, BudgetCallback
from rl_training.runtime.loop.callback import Callback
from rl_training.runtime.loop.early_stopping import EarlyStoppingCallback
from rl_training.runtime.loop.schedule import ScheduleCallback


def build_control_callbacks(
    controls: ControlsConfig | Mapping[str, Any],
    *,
    total_timesteps: int,
    default_schedules: Mapping[str, str] | None = None,
) -> list[Callback]:
    """Build schedules, early stopping and budgets, in the order in which they must run.

    `controls` may be a plain mapping of options: `{"max_updates": 1_000}`. `default_schedules`, the
    algorithm's own by network, hold where the options name none.
    """
    if not isinstance(controls, ControlsConfig):
        controls = ControlsConfig(**controls)
    callbacks: list[Callback] = []
    schedules = controls.schedules()
    if controls.learning_rate_schedule is None:
        defaults = (default_schedules or {}).items()
        schedules = {network: ScheduleConfig(kind=kind) for network, kind in defaults}
    if controls.warmup_steps or any(s.kind != "constant" for s in schedules.values()):
        callbacks.append(
            ScheduleCallback(schedules, warmup_steps=controls.warmup_steps, total=total_timesteps)
        )
    if controls.early_stopping is not None:
        callbacks.append(EarlyStoppingCallback(controls.early_stopping))
    callbacks.append(BudgetCallback(Budget.of(controls, total_timesteps)))
    return callbacks
