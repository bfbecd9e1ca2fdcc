"""What steers a run: budgets, early stopping, schedules; the `control` group of options."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import field_validator, model_validator

from rl_training.config import ConfigError, Options, Problem, RunError, option, suggest
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.config.schedules import ScheduleConfig, ScheduleKind, factor

if TYPE_CHECKING:
    from rl_training.algorithms.base import Terms
    from rl_training.runtime.trainer import TrainerState


def metric_key(name: str) -> str:
    """`eval/return_mean`, also when spelt `eval_return_mean`."""
    group, separator, rest = name.partition("_")
    if "/" not in name and separator and group in ("eval", "train", "rollout", "time"):
        return f"{group}/{rest}"
    return name


EVALUATION_METRICS = (
    "eval/return_mean",
    "eval/return_std",
    "eval/length_mean",
    "eval/success_rate",
    "eval/shaped_return_mean",
)


class EarlyStoppingConfig(Options):
    metric: str = option("eval/return_mean", "the evaluation metric to watch")
    mode: Literal["max", "min"] = option("max", "whether larger or smaller is better")
    patience: int = option(10, "evaluations without improvement before stopping", ge=1)
    min_delta: float = option(0.0, "change that counts as an improvement", ge=0)
    min_steps: int = option(0, "no stopping before this step", ge=0)
    target_value: float | None = option(None, "stop as soon as the metric reaches this")

    @field_validator("metric")
    @classmethod
    def _is_measured(cls, name: str) -> str:
        key = metric_key(name)
        if key not in EVALUATION_METRICS and not key.startswith("train/"):
            known = ", ".join(EVALUATION_METRICS)
            hint = suggest(key, EVALUATION_METRICS) or f" (known: {known}, train/<loss>)"
            raise ValueError(f"{name!r} is not measured{hint}")
        return name


class EarlyStoppingCallback(Callback):
    """Stops when the metric reached its target, or has not improved for `patience` evaluations."""

    def __init__(self, config: EarlyStoppingConfig) -> None:
        self.config = config
        self.best: float | None = None
        self.stale = 0
        self._overruled = False

    def on_train_start(self, state: TrainerState) -> None:
        """A run that goes on past its early stop gets fresh patience and has had its target."""
        self._overruled = self.best is not None and self._reached_target(self.best)
        if self.stale >= self.config.patience:
            self.stale = 0

    def on_eval_end(self, state: TrainerState, metrics: Mapping[str, float]) -> None:
        watched = metric_key(self.config.metric)
        if watched.startswith("train/") and not any(name.startswith("train/") for name in metrics):
            return  # the first row of losses is still to come
        value = self._value(metrics)
        ripe = state.global_step >= self.config.min_steps
        if ripe and self._reached_target(value) and not self._overruled:
            state.request_stop(
                f"early stopping: {self.config.metric} reached {self.config.target_value:g}"
            )
        if self._improves(value):
            self.best, self.stale = value, 0
        else:
            self.stale += 1
        if ripe and self.stale >= self.config.patience:
            state.request_stop(
                f"early stopping: {self.config.metric} has not improved for "
                f"{self.stale} evaluations (best {self.best})"
            )

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "stale": self.stale}

    def load_state_dict(self, values: dict[str, Any]) -> None:
        self.best, self.stale = values["best"], values["stale"]

    def _value(self, metrics: Mapping[str, float]) -> float:
        by_key = {metric_key(name): value for name, value in metrics.items()}
        if metric_key(self.config.metric) not in by_key:
            known = ", ".join(sorted(by_key))
            raise RunError(
                f"early_stopping.metric {self.config.metric!r} is not measured (measured: {known})"
            )
        return by_key[metric_key(self.config.metric)]

    def _improves(self, value: float) -> bool:
        if math.isnan(value):
            return False
        if self.best is None:
            return True
        gain = value - self.best if self.config.mode == "max" else self.best - value
        return gain > self.config.min_delta

    def _reached_target(self, value: float) -> bool:
        target = self.config.target_value
        if target is None:
            return False
        return value >= target if self.config.mode == "max" else value <= target


class ControlsConfig(Options):
    regime: Literal["offline", "online", "offline_to_online"] | None = option(
        None, "where transitions come from; null = the algorithm's first"
    )
    eval_interval: int = option(5_000, "steps between evaluations", ge=1)
    early_stopping: EarlyStoppingConfig | None = option(None, "when to stop before the budget")
    max_updates: int | None = option(None, "budget in gradient updates", ge=1)
    max_epochs: int | None = option(None, "budget in passes over the dataset", ge=1)
    learning_rate_schedule: ScheduleKind | dict[str, Any] | None = option(
        None,
        "decay of every learning rate: a name, {kind, final, horizon}, or one of these per network; "
        "null = the algorithm's own",
    )
    warmup_steps: int = option(
        0, "steps over which learning rates rise linearly to their value", ge=0
    )
    keep_checkpoints: int | None = option(
        None, "how many step checkpoints to keep besides `best`; null = all", ge=2
    )
    torch_threads: int = option(
        1, "CPU threads of PyTorch; more than one rarely helps networks of this size", ge=1, le=256
    )
    stepper: Literal["captured", "eager"] = option(
        "captured",
        "how losses are differentiated: captured once and replayed, or operation by operation",
    )
    tensorboard: bool | None = option(
        None, "write tensorboard/ event files; null = if TensorBoard is installed"
    )

    @field_validator("stepper", mode="before")
    @classmethod
    def _rename_stepper(cls, value: Any) -> Any:
        if value == "compiled":
            raise ValueError("'compiled' was removed: leave it out, captured losses are faster")
        return "captured" if value == "replay" else value

    @model_validator(mode="after")
    def _schedules_parse(self) -> ControlsConfig:
        self.schedules()
        return self

    def schedules(self) -> dict[str, ScheduleConfig]:
        """Schedule per network; the key `*` stands for every network."""
        given = self.learning_rate_schedule
        if given is None:
            return {}
        if isinstance(given, str):
            return {"*": ScheduleConfig(kind=given)}
        place: tuple[str, ...] = ("learning_rate_schedule",)
        try:
            if "kind" in given:
                return {"*": ScheduleConfig(**given)}
            named: dict[str, ScheduleConfig] = {}
            for network, value in given.items():
                place = ("learning_rate_schedule", str(network))
                values = {"kind": value} if isinstance(value, str) else value
                if not isinstance(values, dict):
                    raise ConfigError(f"expected a schedule, got {value!r}")
                named[network] = ScheduleConfig(**values)
        except ConfigError as error:
            raise ConfigError([problem.under(*place) for problem in error.problems]) from None
        return named


class BudgetCallback(Callback):
    """Ends the run at the first budget reached."""

    def __init__(self, total: int, controls: ControlsConfig) -> None:
        self.total = total
        self.max_updates = controls.max_updates
        self.max_epochs = controls.max_epochs

    def on_train_start(self, state: TrainerState) -> None:
        self._check(state)

    def on_collect_end(self, state: TrainerState, env_steps: int) -> None:
        self._check(state)

    def on_update_end(self, state: TrainerState, terms: Terms) -> None:
        self._check(state)

    def _check(self, state: TrainerState) -> None:
        if state.global_step >= self.total and not state.updates_due:
            state.request_stop("total_timesteps")
        elif self.max_updates is not None and state.update_count >= self.max_updates:
            state.request_stop("max_updates")
        elif self.max_epochs is not None and state.epoch >= self.max_epochs:
            state.request_stop("max_epochs")


class ScheduleCallback(Callback):
    """Sets each network's learning rate for the next update."""

    def __init__(
        self, schedules: Mapping[str, ScheduleConfig], controls: ControlsConfig, total: int
    ) -> None:
        self.schedules = schedules
        self.warmup_steps = controls.warmup_steps
        self.total = total  # the run's first total: a longer resume does not bend the curve

    def on_train_start(self, state: TrainerState) -> None:
        self._apply(state)

    def on_collect_end(self, state: TrainerState, env_steps: int) -> None:
        self._apply(state)

    def on_update_end(self, state: TrainerState, terms: Terms) -> None:
        self._apply(state)

    def state_dict(self) -> dict[str, Any]:
        return {"total": self.total}

    def load_state_dict(self, values: dict[str, Any]) -> None:
        self.total = values["total"]

    def _apply(self, state: TrainerState) -> None:
        for network in state.algorithm.losses:
            schedule = self.schedules.get(network, self.schedules.get("*"))
            share = factor(
                schedule or ScheduleConfig(),
                state.global_step,
                total=self.total,
                warmup_steps=self.warmup_steps,
            )
            state.algorithm.set_learning_rate_factor(network, share)


def build_control_callbacks(
    controls: ControlsConfig,
    *,
    total_timesteps: int,
    default_schedules: Mapping[str, str] | None = None,
) -> list[Callback]:
    """The callbacks that a `control` group asks for, in the order they must run.

    `default_schedules`, the algorithm's own by network, hold where the group names none.
    """
    callbacks: list[Callback] = []
    schedules = controls.schedules()
    if controls.learning_rate_schedule is None:
        named = (default_schedules or {}).items()
        schedules = {network: ScheduleConfig(kind=kind) for network, kind in named}
    if controls.warmup_steps or any(s.kind != "constant" for s in schedules.values()):
        callbacks.append(ScheduleCallback(schedules, controls, total_timesteps))
    if controls.early_stopping is not None:
        callbacks.append(EarlyStoppingCallback(controls.early_stopping))
    callbacks.append(BudgetCallback(total_timesteps, controls))
    return callbacks


def schedule_problems(controls: ControlsConfig, networks: Mapping[str, Any]) -> list[Problem]:
    """Schedules for networks that the algorithm does not have."""
    known = ", ".join(networks)
    return [
        Problem(("learning_rate_schedule", name), f"no such network (the networks are: {known})")
        for name in controls.schedules()
        if name != "*" and name not in networks
    ]
